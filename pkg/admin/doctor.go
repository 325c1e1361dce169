package admin

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nstance/nstance/pkg/client"
	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/object"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// Results of a diagnosis.
const (
	DiagnosisOK   = "ok"
	DiagnosisWarn = "warn"
	DiagnosisFail = "fail"
)

// Diagnosis is the result of one check of a cluster.
type Diagnosis struct {
	Check  string `json:"check"`
	Result string `json:"result"`
	Detail string `json:"detail"` // what was found and, unless it is ok, what to do
}

// Doctor checks a cluster. It changes nothing but objects of its own, which it deletes again.
type Doctor struct {
	Storage StorageConfig // without a bucket: the storage is not checked
	Getenv  func(string) string
	Now     func() time.Time
	Random  io.Reader
	// Dial opens a connection to a port; nil: TCP.
	Dial func(ctx context.Context, addr string) (net.Conn, error)
}

// Bounds of a diagnosis.
const (
	caEndsSoon       = 30 * 24 * time.Hour
	identityEndsSoon = 7 * 24 * time.Hour
	clockApart       = 5 * time.Second  // a difference worth a warning
	clockWrong       = 60 * time.Second // a difference that makes nonces invalid
	portPatience     = 3 * time.Second  // for a connection
	maxSilent        = 10               // agents that are named
)

func diagnosis(check, result, format string, args ...any) Diagnosis {
	return Diagnosis{Check: check, Result: result, Detail: fmt.Sprintf(format, args...)}
}

// CheckStorage checks the storage: its conditional writes, the secrets, the CAs, the clock, and for each
// shard its leader and the leader's ports.
func (d Doctor) CheckStorage(ctx context.Context) (out []Diagnosis) {
	store, err := d.Storage.openExisting(d.Getenv)
	var findings []object.Finding
	if err == nil {
		findings, err = examine(ctx, store, d.Now(), d.Random)
	}
	if err != nil {
		return append(out, diagnosis("storage", DiagnosisFail, "%v: correct the bucket, its endpoint or the keys; "+
			"`nstance-admin storage check` shows each check", err))
	}
	out = append(out, diagnosis("storage", DiagnosisOK, "all %d checks of its conditional writes, reads and lists passed", len(findings)))
	for _, f := range checkContents(ctx, store) {
		out = append(out, diagnosed(f))
	}
	out = append(out, d.clock(ctx, store))
	if cluster, err := OpenCluster(ctx, d.Storage, d.Getenv, d.Now, d.Random); err != nil {
		out = append(out, diagnosis("secrets", DiagnosisFail, "%v", err))
	} else {
		out = append(out, diagnosis("secrets", DiagnosisOK, "the cluster's CA and keys can be read"))
		for _, ca := range cluster.CAs() {
			out = append(out, d.ca(ca))
		}
	}
	return append(out, d.leaders(ctx, store)...)
}

// diagnosed returns a finding on the storage's contents. One that could not be checked for lack of a
// permission is no failure.
func diagnosed(f object.Finding) Diagnosis {
	switch {
	case f.Err != nil:
		return diagnosis(f.Check, DiagnosisFail, "%s", f.Detail)
	case f.Result != object.ResultOK:
		return diagnosis(f.Check, DiagnosisOK, "%s: %s", f.Result, f.Detail)
	}
	return diagnosis(f.Check, DiagnosisOK, "%s", cmp.Or(f.Detail, f.Meaning))
}

// clock compares this machine's clock to the store's, by the time of an object of its own.
func (d Doctor) clock(ctx context.Context, store object.Store) Diagnosis {
	const check = "clock"
	id, err := fleet.NewID("prb", d.Now(), d.Random)
	if err != nil {
		return diagnosis(check, DiagnosisFail, "%v", err)
	}
	ahead, err := object.ClockAhead(ctx, store, string(id), d.Now)
	if err != nil {
		return diagnosis(check, DiagnosisFail, "%v", err)
	}
	apart := ahead.Abs()
	switch {
	case apart >= clockWrong:
		return diagnosis(check, DiagnosisFail, "the clocks of this machine and of the storage are %s apart: set this machine's", apart)
	case apart >= clockApart:
		return diagnosis(check, DiagnosisWarn, "the clocks of this machine and of the storage are %s apart: set this machine's", apart)
	}
	return diagnosis(check, DiagnosisOK, "the clocks of this machine and of the storage agree")
}

func (d Doctor) ca(ca CA) Diagnosis {
	check := "CA " + ca.Fingerprint[:12]
	ends := ca.NotAfter.Format(time.RFC3339)
	switch left := ca.NotAfter.Sub(d.Now()); {
	case left <= 0 && ca.Signs:
		return diagnosis(check, DiagnosisFail, "the CA that signs expired at %s: no certificate is valid any more", ends)
	case left <= 0:
		return diagnosis(check, DiagnosisWarn, "it expired at %s: remove it with `nstance-admin cluster ca remove`", ends)
	case left < caEndsSoon:
		return diagnosis(check, DiagnosisWarn, "it expires at %s: replace it before", ends)
	}
	return diagnosis(check, DiagnosisOK, "it is valid until %s", ends)
}

// leading is what a shard's leader record says.
type leading struct {
	Holder   string            `json:"holder"`
	Epoch    uint64            `json:"epoch"`
	Released bool              `json:"released"`
	Addrs    map[string]string `json:"addrs"`
}

// leaders checks the leader records of all shards, and the ports they name.
func (d Doctor) leaders(ctx context.Context, store object.Store) (out []Diagnosis) {
	infos, err := object.All(ctx, store, "leader/")
	if err != nil {
		return append(out, diagnosis("leaders", DiagnosisFail, "%v", err))
	}
	if len(infos) == 0 {
		return append(out, diagnosis("leaders", DiagnosisFail, "no shard has had a leader yet: start a server"))
	}
	for _, info := range infos {
		check := "leader of " + strings.TrimSuffix(path.Base(info.Key), path.Ext(info.Key))
		var l leading
		o, err := store.Get(ctx, info.Key)
		if err == nil {
			err = json.Unmarshal(o.Body, &l)
		}
		switch {
		case errors.Is(err, object.ErrNotFound):
			continue // deleted since it was listed
		case err != nil:
			out = append(out, diagnosis(check, DiagnosisFail, "%s: %v", info.Key, err))
			continue
		case l.Released:
			out = append(out, diagnosis(check, DiagnosisFail, "%s has stopped leading at epoch %d, and no server follows: start one",
				l.Holder, l.Epoch))
			continue
		}
		out = append(out, diagnosis(check, DiagnosisOK, "%s leads at epoch %d", l.Holder, l.Epoch))
		for _, port := range slices.Sorted(maps.Keys(l.Addrs)) {
			out = append(out, d.port(ctx, check+", "+port, l.Addrs[port]))
		}
	}
	return out
}

func (d Doctor) port(ctx context.Context, check, addr string) Diagnosis {
	ctx, cancel := context.WithTimeout(ctx, portPatience)
	defer cancel()
	dial := d.Dial
	if dial == nil {
		dial = func(ctx context.Context, addr string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "tcp", addr)
		}
	}
	conn, err := dial(ctx, addr)
	if err != nil {
		return diagnosis(check, DiagnosisFail, "no connection to %s (%v): check that the server is up, and the firewall between", addr, err)
	}
	conn.Close()
	return diagnosis(check, DiagnosisOK, "%s accepts connections", addr)
}

// CheckIdentity checks how long the client's identity is valid.
func (d Doctor) CheckIdentity(c *Client) Diagnosis {
	id := c.cfg.Identity
	ends := id.Certificate().NotAfter
	if left := ends.Sub(d.Now()); left < identityEndsSoon {
		return diagnosis("identity", DiagnosisWarn, "it expires at %s: use it, which renews it, or create another one with "+
			"`nstance-admin cluster register-operator`", ends.UTC().Format(time.RFC3339))
	}
	return diagnosis("identity", DiagnosisOK, "it is valid until %s", ends.UTC().Format(time.RFC3339))
}

// CheckShards checks that each shard's leader answers, whether the agents of its running instances
// report, and that each address of the shards accepts connections.
func (d Doctor) CheckShards(ctx context.Context, c *Client, shards []client.Shard) []Diagnosis {
	found := make([][]Diagnosis, len(shards))
	done := make(chan struct{})
	for n, s := range shards {
		go func() {
			ports := d.ports(ctx, s) // first: a shard that does not answer takes all the time
			instances, err := c.ListInstances(ctx, []client.Shard{s}, "", false)
			found[n] = append(answered(s.ID, instances, err), ports...)
			done <- struct{}{}
		}()
	}
	for range shards {
		<-done
	}
	return slices.Concat(found...)
}

// ports checks the addresses of a shard, those of standbys, too.
func (d Doctor) ports(ctx context.Context, s client.Shard) []Diagnosis {
	out := make([]Diagnosis, len(s.Addrs))
	var all sync.WaitGroup
	for n, addr := range s.Addrs {
		all.Go(func() { out[n] = d.port(ctx, "shard "+s.ID+", "+addr, addr) })
	}
	all.Wait()
	return out
}

func answered(shard string, instances []Instance, err error) []Diagnosis {
	if err != nil {
		return []Diagnosis{diagnosis("shard "+shard, DiagnosisFail, "%v", err)}
	}
	out := []Diagnosis{diagnosis("shard "+shard, DiagnosisOK, "its leader answers")}
	running := 0
	var silent []string
	for _, i := range instances {
		if i.GetPhase() != nstancev1.InstancePhase_INSTANCE_PHASE_RUNNING {
			continue
		}
		if running++; !i.GetConnected() || i.GetUnhealthyReason() != "" {
			silent = append(silent, i.GetId())
		}
	}
	check := "agents of " + shard
	if len(silent) == 0 {
		return append(out, diagnosis(check, DiagnosisOK, "all %d report", running))
	}
	more := ""
	if n := len(silent) - maxSilent; n > 0 {
		more = fmt.Sprintf(" and %d more", n)
	}
	return append(out, diagnosis(check, DiagnosisWarn,
		"%d of %d don't report, or report a problem: %s%s; `nstance-admin instance status ID` says more",
		len(silent), running, strings.Join(silent[:min(len(silent), maxSilent)], ", "), more))
}
