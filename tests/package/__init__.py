"""The package as others have it: installed by pip, extended by drivers, checked by their mypy."""
