"""Remote sensing scene classification by multi-granularity canonical appearance pooling (MG-CAP)."""
