// Package rapidseed gives property tests the same inputs each time that they run, so that the same
// code gets the same verdict. A test file that imports rapid imports it beside:
//
//	_ "github.com/nstance/nstance/pkg/rapidseed"
//
// RAPID_SEED is another seed; 0 stands for one that rapid draws, and prints if a test fails.
package rapidseed

import (
	"cmp"
	"flag"
	"fmt"
	"os"

	_ "pgregory.net/rapid" // defines the flag
)

// Variable is the environment variable with the seed.
const Variable = "RAPID_SEED"

func init() { //nolint:gochecknoinits // rapid has no other default for its flag
	if err := flag.Set("rapid.seed", cmp.Or(os.Getenv(Variable), "1")); err != nil {
		panic(fmt.Sprintf( //nolint:forbidigo // an init can't return it
			"%s=%q: want a number: %v", Variable, os.Getenv(Variable), err))
	}
}
