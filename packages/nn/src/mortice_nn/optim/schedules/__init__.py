"""The schedules behind ``lr_scheduler``, by how they work."""
