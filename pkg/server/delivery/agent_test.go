package delivery_test

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing/synctest"
	"time"

	"github.com/nstance/nstance/pkg/files"
	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/pki"
	"github.com/nstance/nstance/pkg/server/delivery"
)

// agent is a well-behaved agent: it stores files, applies a set as a whole or not at all, and
// reports.
type agent struct {
	site *fixture
	id   fleet.InstanceID

	files *delivery.Stream[delivery.Push]
	keys  *delivery.Stream[[]delivery.KeyRequest]

	mu      sync.Mutex
	hash    string
	disk    map[string][]byte
	failed  map[string]string // reported errors, by file
	held    map[string]ed25519.PrivateKey
	asked   [][]delivery.KeyRequest
	pushes  []delivery.Push
	broken  string // a file that it fails to write
	deaf    bool   // receives nothing, reports nothing
	keyless bool   // submits no keys
}

func (f *fixture) instance(tenant string) *agent {
	f.t.Helper()
	id, err := fleet.NewID("knd", time.Now(), rand.Reader)
	if err != nil {
		f.t.Fatal(err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.number++
	name := fmt.Sprintf("web-%d", f.number)
	f.instances[id] = fleet.Instance{ID: id, Tenant: tenant, Group: "web", Phase: fleet.Running, Rev: 2, Hostname: name,
		IPs: []string{"10.0.0.1"}}
	return &agent{site: f, id: id, disk: map[string][]byte{}, failed: map[string]string{}, held: map[string]ed25519.PrivateKey{}}
}

// connected returns an agent with all its streams open, which has reported.
func (f *fixture) connected(tenant string) *agent {
	a := f.instance(tenant)
	a.connect()
	return a
}

func (a *agent) connect() {
	a.keys = a.site.d.OpenKeys(a.id, a.generate)
	a.files = a.site.d.OpenFiles(a.id, a.take)
	a.report()
	synctest.Wait()
}

func (a *agent) disconnect() {
	a.site.d.CloseKeys(a.id, a.keys)
	a.site.d.CloseFiles(a.id, a.files)
	a.site.d.Disconnected(a.id)
}

func (a *agent) generate(requests []delivery.KeyRequest) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.asked = append(a.asked, requests)
	for _, r := range requests {
		if a.held[r.Name] == nil {
			a.held[r.Name], _ = pki.GenerateKey(rand.Reader)
		}
	}
	if !a.keyless {
		go func() {
			if err := a.submit(); err != nil {
				a.site.t.Errorf("submit: %v", err)
			}
		}()
	}
	return nil
}

func (a *agent) submit() error {
	a.mu.Lock()
	texts := map[string]string{}
	for _, r := range a.asked[len(a.asked)-1] {
		text, _ := pki.EncodePublicKey(pki.PublicKey(a.held[r.Name]))
		texts[r.Name] = string(text)
	}
	a.mu.Unlock()
	return a.site.d.Submit(a.id, texts)
}

func (a *agent) take(p delivery.Push) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.pushes = append(a.pushes, p)
	if a.deaf {
		return nil
	}
	go a.report()
	next := map[string][]byte{}
	clear(a.failed)
	sent := map[string][]byte{}
	for _, f := range p.Files {
		sent[f.Name] = f.Content
	}
	for _, name := range p.Names {
		content, ok := sent[name]
		if !ok {
			if content, ok = a.disk[name]; !ok {
				a.failed[name] = "not sent and not there"
				return nil
			}
		}
		if err := files.CheckContent(name, content); err != nil || name == a.broken {
			a.failed[name] = fmt.Sprint("disk full", err)
			return nil
		}
		next[name] = content
	}
	a.disk, a.hash = next, p.ConfigHash
	return nil
}

func (a *agent) report() { a.site.d.Reported(a.id, a.state()) }

func (a *agent) state() delivery.FileReport {
	a.mu.Lock()
	defer a.mu.Unlock()
	r := delivery.FileReport{ConfigHash: a.hash}
	for name, content := range a.disk {
		st := delivery.FileStatus{Name: name, State: delivery.Present, SHA256: sha256.Sum256(content)}
		if strings.HasSuffix(name, ".crt") {
			cert := parse(content)
			st.NotAfter, st.PublicKey = cert.NotAfter, sha256.Sum256(cert.RawSubjectPublicKeyInfo)
		}
		r.Files = append(r.Files, st)
	}
	for name, text := range a.failed {
		r.Files = slices.DeleteFunc(r.Files, func(f delivery.FileStatus) bool { return f.Name == name })
		r.Files = append(r.Files, delivery.FileStatus{Name: name, State: delivery.Failed, Error: text})
	}
	return r
}

func parse(content []byte) *x509.Certificate {
	block, _ := pem.Decode(content)
	if block == nil {
		return &x509.Certificate{}
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return &x509.Certificate{}
	}
	return cert
}

// received returns the pushes since the last call.
func (a *agent) received() []delivery.Push {
	synctest.Wait()
	a.mu.Lock()
	defer a.mu.Unlock()
	out := a.pushes
	a.pushes = nil
	return out
}

// names returns the file names of a push.
func names(p delivery.Push) (out []string) {
	for _, f := range p.Files {
		out = append(out, f.Name)
	}
	return out
}

// inOrder checks that the agent has the whole set of its group.
func (a *agent) inOrder() {
	a.site.t.Helper()
	synctest.Wait()
	i, _ := a.site.Instance(a.id)
	g, _ := a.site.Group(i.GroupKey())
	a.mu.Lock()
	defer a.mu.Unlock()
	want := slices.Sorted(maps.Keys(g.Files))
	if have := slices.Sorted(maps.Keys(a.disk)); !slices.Equal(have, want) || a.hash != g.Hashes.Runtime {
		a.site.t.Errorf("%s has %v of %q, want %v of %q", i.Hostname, have, a.hash, want, g.Hashes.Runtime)
	}
	if !a.site.d.UpToDate(i, g) {
		a.site.t.Errorf("%s has all files, and is not up to date", i.Hostname)
	}
}

// upToDate reports whether the delivery counts the instance as up to date.
func (a *agent) upToDate() bool {
	synctest.Wait()
	i, _ := a.site.Instance(a.id)
	g, _ := a.site.Group(i.GroupKey())
	return a.site.d.UpToDate(i, g)
}

// receives checks that exactly one push was received, with these files.
func (a *agent) receives(want ...string) delivery.Push {
	a.site.t.Helper()
	pushes := a.received()
	if len(pushes) != 1 {
		a.site.t.Fatalf("%d pushes came, want 1: %v", len(pushes), pushes)
	}
	if have := names(pushes[0]); !slices.Equal(have, want) {
		a.site.t.Fatalf("pushed %v, want %v", have, want)
	}
	return pushes[0]
}

func (a *agent) receivesNothing() {
	a.site.t.Helper()
	for _, p := range a.received() {
		a.site.t.Errorf("pushed %v and %s", names(p), p.ConfigHash)
	}
}

var errDown = errors.New("it is down")
