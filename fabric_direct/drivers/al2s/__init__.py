"""Network services by Internet2's Virtual Networks (AL2S)."""
