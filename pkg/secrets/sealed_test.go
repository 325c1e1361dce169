package secrets_test

import (
	"testing"
	"testing/synctest"

	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/object/mem"
	"github.com/nstance/nstance/pkg/object/objecttest"
	"github.com/nstance/nstance/pkg/secrets"
	"github.com/nstance/nstance/pkg/secrets/secretstest"
)

// TestConformance runs the common tests of secrets for object storage.
func TestConformance(t *testing.T) {
	secretstest.Run(t, secretstest.Harness{Around: synctest.Test, New: func(t *testing.T) secretstest.World {
		faults := objecttest.NewFaults(mem.New(mem.Config{}), objecttest.Script())
		t.Cleanup(faults.Wait)
		seed := uint64(0)
		return secretstest.World{
			Open: func(t *testing.T) secrets.Secrets {
				seed++
				return sealed(t, faults, seed, keyA)
			},
			Fail: func(f secretstest.Fault, n int) {
				kind := map[secretstest.Fault]objecttest.Fault{secretstest.Dropped: objecttest.Dropped, secretstest.Lost: objecttest.ReplyLost}[f]
				faults.Set(failing(kind, n))
			},
			Down:  func() { faults.Set(objecttest.Always(objecttest.Outcome{Fault: objecttest.Dropped})) },
			Limit: secrets.MaxValue,
		}
	}})
}

// failing makes the next n writes fail.
func failing(kind objecttest.Fault, n int) objecttest.Plan {
	return func(r objecttest.Request) objecttest.Outcome {
		if r.Verb != object.VerbPut || n == 0 {
			return objecttest.Outcome{}
		}
		n--
		return objecttest.Outcome{Fault: kind}
	}
}
