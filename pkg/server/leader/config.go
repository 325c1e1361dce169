package leader

import (
	"crypto/ed25519"
	"errors"
	"io"
	"log/slog"
	"time"

	"github.com/nstance/nstance/pkg/config"
	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/pki"
	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/server/delivery"
	"github.com/nstance/nstance/pkg/server/election"
	"github.com/nstance/nstance/pkg/server/ledger"
)

// Config is what a term needs. All fields without "optional" are required.
type Config struct {
	Fence  *election.Term
	Ledger *ledger.Ledger
	Static *Static
	Boot   *config.Shard // what this process was started on
	Writer string        // names this start of this process in what it writes
	Store  object.Store
	// Operators is the store for the operators' records: to read those is no
	// progress of the shard's own work.
	Operators object.Store
	Secrets   delivery.Secrets

	Provider provider.Provider
	// Listing is told of each attempt to list the VMs (reconcile.Config).
	Listing func() (page func(), ended func(error))

	CA       *pki.CA
	Bundle   func() []byte // the CA bundle, PEM
	NonceKey ed25519.PrivateKey
	// Instances are the addresses that new instances are given.
	Instances    struct{ Registration, Agent []string }
	OperatorAddr string

	// Running is told of each config that the term begins to run.
	Running func(*config.Shard)
	// Stuck says what keeps this leader from acting; empty: nothing does.
	Stuck func() string
	// Cut ends the streams of an instance that is on its way out.
	Cut func(fleet.InstanceID)

	ConfigLook time.Duration // from one look at a config that can't run to the next
	Now        func() time.Time
	Random     io.Reader
	Uniform    func() float64 // draws from [0, 1)
	Logger     *slog.Logger
}

func (c Config) check() error {
	for _, set := range []bool{
		c.Fence != nil, c.Ledger != nil, c.Static != nil, c.Boot != nil, c.Writer != "", c.Store != nil, c.Operators != nil, c.Secrets != nil,
		c.Provider != nil, c.Listing != nil, c.CA != nil, c.Bundle != nil, c.NonceKey != nil, c.Running != nil, c.Stuck != nil, c.Cut != nil,
		c.ConfigLook > 0, c.Now != nil, c.Random != nil, c.Uniform != nil, c.Logger != nil,
	} {
		if !set {
			return errors.New("lead a shard: a field of the config is missing")
		}
	}
	return nil
}
