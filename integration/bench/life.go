package main

import (
	"context"
	"fmt"
	"os/exec"
	"regexp"
	"strconv"
)

// lifeTest is the test that counts the writes of an instance's life, and lifeLog what its parts log.
const lifeTest = "TestLifeWrites"

func lifeLog() *regexp.Regexp { return regexp.MustCompile(`([0-9]+) writes in a life`) }

// What a month of a large shard costs: its requests, at the prices that AWS listed for us-east-1 in 2025.
const (
	lifePut       = 0.005 / 1000 // USD, of a PUT or a listing
	lifeIdle      = 400 * 730    // requests of an idle leader in a month
	lifeBirths    = 10_000 * 365 / 12
	lifeInstances = 5_000
)

// measureLife runs lifeTest.
func measureLife(ctx context.Context, _ *bench) (figures []figure, err error) {
	for _, life := range []struct {
		name, part string
		most       float64
	}{{"plain", "plain", 4}, {"drained", "drained", 6}, {"on_demand", "on demand", 5}} {
		only := "^" + lifeTest + "$/^" + life.part + "$"
		said, err := exec.CommandContext(ctx, "go", "test", "-count=1", "-v", "-run", only, "./pkg/server").CombinedOutput()
		found := lifeLog().FindSubmatch(said)
		if found == nil {
			return figures, fmt.Errorf("%s does not log the writes of a life, %s: %w: %.2000s", lifeTest, life.part, err, said)
		}
		writes, err := strconv.ParseFloat(string(found[1]), 64)
		if err != nil {
			return figures, fmt.Errorf("%s: %w", lifeTest, err)
		}
		figures = append(figures,
			newFigure("life_writes_"+life.name, writes, "writes", 1).atMost(life.most).noted("from the create until the tombstone is gone"),
			newFigure("life_month_"+life.name, lifePut*(lifeIdle+lifeBirths*writes), "USD", lifeInstances).
				noted("S3 requests of 5,000 instances, of which 10,000 are made a day"))
	}
	return figures, nil
}
