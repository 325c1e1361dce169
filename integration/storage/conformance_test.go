//go:build integration

// Package storage tests real object stores against the contract of pkg/object, and with failures:
// killed, frozen and full.
package storage

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/nstance/nstance/integration/containers"
	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/object/objecttest"
)

var engine containers.Engine

// product is a kind of store.
type product struct {
	name   string
	start  func(*containers.World, string, containers.At, containers.Data) *containers.Store
	except []string // of the contract, as in docs/storage.md
}

func products() []product {
	return []product{
		{"minio", (*containers.World).MinIO, []string{objecttest.KeysInsideKeys, objecttest.DotPrefixes}},
		{"versitygw", (*containers.World).Versitygw, []string{objecttest.KeysInsideKeys}},
	}
}

// each runs a story for each product, on a store of its own.
func each(t *testing.T, data containers.Data, tell func(*containers.World, *containers.Store, product)) {
	for _, p := range products() {
		t.Run(p.name, func(t *testing.T) {
			w := engine.Begin(t, "storage")
			tell(w, p.start(w, p.name, containers.At{Network: w.Network("net"), Nth: 10}, data), p)
		})
	}
}

// TestConformance: each passes the whole contract, except for what docs/storage.md lists.
func TestConformance(t *testing.T) {
	each(t, containers.Data{}, func(w *containers.World, s *containers.Store, p product) {
		var buckets atomic.Int64
		objecttest.Run(w.T, func(t *testing.T) object.Store {
			return w.In(t).Bucket(s, fmt.Sprintf("bucket-%d", buckets.Add(1)))
		}, p.except...)
	})
}
