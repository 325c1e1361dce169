package traces_test

import (
	"testing"

	"github.com/nstance/nstance/pkg/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m.Run) }
