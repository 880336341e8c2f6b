"""Policies over graphs, trained by policy gradients: the papers' agents as configurations."""
