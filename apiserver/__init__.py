"""What Railnet tells the Kubernetes API server: objects as it wants them, and the queue in which they wait for it."""
