"""Generic perturbations, disjoint from the 18 corruptions: the shifted data that a calibrator is fitted on."""
