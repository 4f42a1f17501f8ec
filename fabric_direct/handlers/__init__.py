"""Per resource type: what create, modify, delete, probe and each action consist of."""
