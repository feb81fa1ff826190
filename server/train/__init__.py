"""Homes: where the learner lives."""
