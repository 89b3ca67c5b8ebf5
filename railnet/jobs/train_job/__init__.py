"""The jobs of `railnet train`: what a user asks for, the objects that are made of it, and the states of its tasks."""
