"""From records to tables and figures; knows nothing of torch."""
