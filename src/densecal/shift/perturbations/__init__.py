"""Generic perturbations, disjoint from the 18 corruptions, for fitting calibrators under shift."""
