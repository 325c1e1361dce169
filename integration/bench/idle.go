package main

import (
	"context"
	"fmt"
	"os/exec"
	"regexp"
	"strconv"
)

// idleTest is the test that counts an idle shard's requests in simulated time, and idleLog what it
// logs.
const idleTest = "TestIdleRequests"

func idleLog() *regexp.Regexp {
	return regexp.MustCompile(`([0-9.]+) requests of a leader, ([0-9.]+) of a standby an hour`)
}

// measureIdle runs idleTest.
func measureIdle(ctx context.Context, _ *bench) ([]figure, error) {
	said, err := exec.CommandContext(ctx, "go", "test", "-count=1", "-v", "-run", "^"+idleTest+"$", "./pkg/server").CombinedOutput()
	found := idleLog().FindSubmatch(said)
	if found == nil {
		return nil, fmt.Errorf("%s does not log its counts: %w: %.2000s", idleTest, err, said)
	}
	figures := make([]figure, 0, 2)
	for n, most := range []float64{400, 20} {
		count, err := strconv.ParseFloat(string(found[n+1]), 64)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", idleTest, err)
		}
		name := []string{"idle_requests_leader", "idle_requests_standby"}[n]
		figures = append(figures, newFigure(name, count, "1/h", 1).atMost(most).noted("in simulated time"))
	}
	return figures, nil
}
