"""The reports of a run: text, JSON, an HTML page, and the Common Test Report Format."""
