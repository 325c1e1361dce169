//go:build !race

package reconcile_test

// underRace: the race detector makes everything several times slower.
const underRace = false
