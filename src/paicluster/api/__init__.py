"""HTTP. Routes are thin: who asks, what for, one call inward, the exact words outward. One room a dialect."""
