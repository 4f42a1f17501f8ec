"""The steps of a VM's flows: one file for each subject. Each step checks itself and can be undone."""
