//go:build integration

package cluster

import (
	"testing"

	"github.com/nstance/nstance/pkg/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m.Run) }
