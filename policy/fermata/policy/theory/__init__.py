"""What can be known without a simulator: when a hold pays, what is optimal in small cases, what nothing can beat.

- `pair`: one job that waits and one that may come; Theorems 1 and 2 of the idle-slots paper, corrected.
- `one_stage`: a DAG job as one stage, by its critical path and width.
- `queueing`: closed forms for queues that a simulator must agree with.
- `bounds`: preemptive and pooled schedules that no schedule without preemption beats, or hardly any.
- `chain`, `iteration`, `optimal`, `replay`: the optimal policy of two job classes by dynamic programming.

Pure functions of numbers and arrays. Nothing here knows a cluster state, a simulator or a workload file.
"""
