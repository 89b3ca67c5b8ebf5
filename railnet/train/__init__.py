"""`railnet train`: a training job in one command."""
