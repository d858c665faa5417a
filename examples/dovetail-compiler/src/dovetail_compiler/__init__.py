"""A compile backend for mortice, as a third party publishes it."""
