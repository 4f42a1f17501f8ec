"""Network services by Cisco's Network Services Orchestrator (NSO)."""
