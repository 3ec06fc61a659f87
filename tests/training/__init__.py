"""Tests of rewards for training, without a trainer: the functions are called as trainers call them."""
