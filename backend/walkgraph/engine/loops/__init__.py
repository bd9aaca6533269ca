"""Device loops: lowered once, admitted to slots, launched, collected."""
