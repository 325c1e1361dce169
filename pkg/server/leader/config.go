package leader

import (
	"context"
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
	"github.com/nstance/nstance/pkg/server/identities"
	"github.com/nstance/nstance/pkg/server/ledger"
	"github.com/nstance/nstance/pkg/server/measure"
	"github.com/nstance/nstance/pkg/server/outage"
	"github.com/nstance/nstance/pkg/server/traces"
)

// Config is what a term needs. All fields without "optional" are required.
type Config struct {
	Fence  *election.Term
	Ledger *ledger.Ledger
	Static *Static
	Boot   *config.Shard // the config this process was started with
	Writer string        // identifies this start of this process in its writes
	Store  object.Store
	// Operators is the store for the records of operators and of elections: reading these does
	// not count as progress of the shard's own work.
	Operators object.Store
	Secrets   delivery.Secrets

	Provider provider.Provider
	// Listing is called for each attempt to list the VMs (reconcile.Config).
	Listing func() (page func(), ended func(error))

	CA       *pki.CA
	Bundle   func() []byte // the CA bundle, PEM
	NonceKey ed25519.PrivateKey
	// RestoreTrust stores again what is missing of the CA and the keys (secrets.Restore).
	RestoreTrust func(context.Context) (stored []string, err error)
	// Instances are the addresses that new instances connect to.
	Instances    struct{ Registration, Agent []string }
	OperatorAddr string
	// Servers returns the names and addresses in this server's certificate, including the leader's,
	// and of the shard's standbys.
	Servers func() identities.Servers

	// Running is called with each config that the term starts to run.
	Running func(*config.Shard)
	// Stuck returns why this leader can't act; empty if it can.
	Stuck func() string
	// Outage returns the current outage of object storage.
	Outage func() outage.Outage
	// Cut ends the streams of an instance that is being removed.
	Cut func(fleet.InstanceID)
	// Called returns when the agent of an instance without a record last called (reconcile.Config).
	Called func(fleet.InstanceID) time.Time
	// CertificateExpires returns when the certificate of an instance's agent expires; zero: unknown.
	CertificateExpires func(fleet.InstanceID) time.Time
	// Found is called with operators that no server registered (roster.Config).
	Found func(context.Context, fleet.Operator)

	// Replacements measures replacements. Optional.
	Replacements *measure.Replacements
	// Starts traces the starts of instances. Optional.
	Starts *traces.Starts
	// Edits traces what follows from edits. Optional.
	Edits *traces.Edits

	ConfigLook time.Duration // interval between reads of an invalid config
	Now        func() time.Time
	Random     io.Reader
	Uniform    func() float64 // draws from [0, 1)
	Logger     *slog.Logger
}

func (c Config) check() error {
	for _, set := range []bool{
		c.Fence != nil, c.Ledger != nil, c.Static != nil, c.Boot != nil, c.Writer != "", c.Store != nil, c.Operators != nil, c.Secrets != nil,
		c.Provider != nil, c.Listing != nil, c.CA != nil, c.Bundle != nil, c.NonceKey != nil, c.RestoreTrust != nil,
		c.Running != nil, c.Stuck != nil, c.Outage != nil, c.Cut != nil, c.Called != nil, c.Found != nil, c.ConfigLook > 0, c.Now != nil,
		c.CertificateExpires != nil, c.Random != nil, c.Uniform != nil, c.Logger != nil,
	} {
		if !set {
			return errors.New("leader: a field of the config is missing")
		}
	}
	return nil
}
