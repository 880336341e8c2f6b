"""Training of inspectors of rigid jobs: `train.py` is the loop, `ppo.py` the algorithm, `rollouts.py` the data."""
