"""Monitor: the accuracy of a classifier over time, estimated without labels, and alarms."""
