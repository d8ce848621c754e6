"""The engines, one module or package each; an engine imports its own driver and no other engine."""
