package roster_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/object/mem"
	"github.com/nstance/nstance/pkg/object/objecttest"
	"github.com/nstance/nstance/pkg/pki"
	sealing "github.com/nstance/nstance/pkg/record"
	"github.com/nstance/nstance/pkg/rpc"
	"github.com/nstance/nstance/pkg/server/roster"
)

// desk is a roster with its store, inside a test's bubble.
type desk struct {
	*roster.Roster
	t      *testing.T
	mem    *mem.Store
	counts *objecttest.Counting
	faults *objecttest.Faults
	found  []fleet.Operator // admitted without a server's record
}

func newDesk(t *testing.T) *desk {
	inner := mem.New(mem.Config{HashETags: true})
	counts := objecttest.NewCounting(inner)
	d := &desk{t: t, mem: inner, counts: counts, faults: objecttest.NewFaults(counts, nil)}
	d.Roster = roster.New(roster.Config{Store: d.faults, Seal: seal(), Now: time.Now, Logger: slog.New(slog.DiscardHandler),
		Found: func(_ context.Context, o fleet.Operator) { d.found = append(d.found, o) }})
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); d.Run(ctx) }()
	t.Cleanup(func() { stop(); <-done })
	return d
}

// caller is the n-th operator of a tenant.
func caller(tenant string, n int) pki.Caller {
	return pki.Caller{Role: pki.RoleOperator, Tenant: tenant, ID: fmt.Sprintf("opr01jw51r7hsec0syhzdhqda%04d", n)}
}

func record(c pki.Caller) fleet.Operator {
	return fleet.Operator{ID: fleet.InstanceID(c.ID), Tenant: c.Tenant, PublicKeySHA256: "ab", Rev: 1}
}

// seal returns the seal of the records.
func seal() sealing.Seal { return sealing.NewSeal([]byte("of this test")) }

// put writes a record without the roster's knowledge.
func (d *desk) put(o fleet.Operator) { d.putAs(o.Key(), o, seal()) }

// putAs writes a record with the given key and seal.
func (d *desk) putAs(key string, o fleet.Operator, with sealing.Seal) {
	d.t.Helper()
	body, err := json.Marshal(o)
	if err == nil {
		body, err = with.Close(key, body)
	}
	if err != nil {
		d.t.Fatal(err)
	}
	d.write(key, string(body))
}

func (d *desk) write(key, body string) {
	d.t.Helper()
	if _, err := d.mem.Put(d.t.Context(), key, []byte(body), object.Precondition{}); err != nil {
		d.t.Fatal(err)
	}
}

func (d *desk) read(key string) string {
	d.t.Helper()
	found, err := d.mem.Get(d.t.Context(), key)
	if err != nil {
		d.t.Fatal(err)
	}
	return string(found.Body)
}

func (d *desk) delete(c pki.Caller) {
	d.t.Helper()
	if err := d.mem.Delete(d.t.Context(), record(c).Key()); err != nil {
		d.t.Fatal(err)
	}
}

// judge does the same as the guard before every call.
func (d *desk) judge(c pki.Caller) error {
	verdict, ok := d.Known(c)
	if !ok {
		verdict = d.Verify(d.t.Context(), c)
	}
	return verdict
}

func (d *desk) welcome(c pki.Caller) {
	d.t.Helper()
	if err := d.judge(c); err != nil {
		d.t.Errorf("%s is not welcome: %v", c.ID, err)
	}
}

func (d *desk) refused(c pki.Caller, says string) {
	d.t.Helper()
	if err := d.judge(c); !errors.Is(err, rpc.CertificateRevoked) || !strings.Contains(err.Error(), says) {
		d.t.Errorf("the verdict on %s is %v, want a refusal that says %q", c.ID, err, says)
	}
}

// asked returns the requests to the store since a reading.
func (d *desk) asked(since objecttest.Counts) objecttest.Counts { return d.counts.Counts().Sub(since) }

func (d *desk) wants(since, want objecttest.Counts, when string) {
	d.t.Helper()
	if got := d.asked(since); got != want {
		d.t.Errorf("%s: the store was asked %+v, want %+v", when, got, want)
	}
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// bubble runs a test in simulated time.
func bubble(t *testing.T, f func(*testing.T, *desk)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(t, newDesk(t)) })
}
