"""The paper's statements, each with what decides it."""
