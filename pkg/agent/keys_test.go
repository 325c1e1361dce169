package agent_test

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

const (
	ed   = nstancev1.KeyAlgorithm_KEY_ALGORITHM_ED25519
	p256 = nstancev1.KeyAlgorithm_KEY_ALGORITHM_ECDSA_P256
)

// asks makes a server request keys on every stream, and again for each value from the channel.
func (s *server) asks(first ...*nstancev1.KeyRequest) chan []*nstancev1.KeyRequest {
	more := make(chan []*nstancev1.KeyRequest)
	s.set(func() {
		s.askKeys = func(stream nstancev1.AgentService_KeyGenRequestsServer) error {
			for asked := first; ; {
				if err := stream.Send(&nstancev1.KeyGenRequestsResponse{Keys: asked}); err != nil {
					return err
				}
				select {
				case asked = <-more:
				case <-stream.Context().Done():
					return stream.Context().Err()
				}
			}
		}
	})
	return more
}

func key(name string, algorithm nstancev1.KeyAlgorithm) *nstancev1.KeyRequest {
	return &nstancev1.KeyRequest{Name: name, Algorithm: algorithm}
}

func (s *server) keys() []map[string]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.submitted)
}

func parsed(t *testing.T, text string) any {
	t.Helper()
	block, rest := pem.Decode([]byte(text))
	if block == nil || len(rest) != 0 {
		t.Fatalf("%q is no PEM block", text)
	}
	if block.Type == "PRIVATE KEY" {
		return must(x509.ParsePKCS8PrivateKey(block.Bytes))(t)
	}
	return must(x509.ParsePKIXPublicKey(block.Bytes))(t)
}

func TestKeysAreMadeAndHandedIn(t *testing.T) {
	withFixture(t, func(f *fixture) {
		server := f.up("10.0.0.1")
		more := server.asks(key("web", ed), key("kubelet", p256))
		p := f.start(f.config())
		settle(time.Second)
		got := server.keys()
		if len(got) != 1 || len(got[0]) != 2 {
			t.Fatalf("handed in %v", got)
		}
		web, ok := parsed(t, got[0]["web"]).(ed25519.PublicKey)
		if !ok || !web.Equal(parsed(t, f.file("keys/web.key")).(ed25519.PrivateKey).Public()) {
			t.Errorf("web is %s", got[0]["web"])
		}
		kubelet, ok := parsed(t, got[0]["kubelet"]).(*ecdsa.PublicKey)
		if !ok || kubelet.Curve != elliptic.P256() || !kubelet.Equal(parsed(t, f.file("keys/kubelet.key")).(*ecdsa.PrivateKey).Public()) {
			t.Errorf("kubelet is %s", got[0]["kubelet"])
		}
		for name := range got[0] {
			if f.file("keys/"+name+".pub") != got[0][name] {
				t.Errorf("%s.pub is %s", name, f.file("keys/"+name+".pub"))
			}
			for _, ext := range []string{".key", ".pub"} {
				if info := must(os.Stat(filepath.Join(f.dir, "keys", name+ext)))(t); info.Mode() != 0o640 {
					t.Errorf("%s%s has mode %s", name, ext, info.Mode())
				}
			}
		}

		more <- []*nstancev1.KeyRequest{key("web", ed), key("more", ed)}
		settle(0)
		if now := server.keys(); len(now) != 2 || now[1]["web"] != got[0]["web"] || now[1]["more"] == "" || now[1]["kubelet"] != "" {
			t.Errorf("after a second request: %v", now)
		}
		more <- nil
		settle(time.Minute)
		if now := server.keys(); len(now) != 2 {
			t.Errorf("after a request for none: %v", now)
		}

		os.Remove(filepath.Join(f.dir, "keys/web.pub"))
		server.down()
		server.start()
		settle(time.Minute)
		if now := server.keys(); len(now) != 3 || !maps.Equal(now[2], got[0]) || f.file("keys/web.pub") == "" {
			t.Errorf("after a reconnection: %v, want %v", now[2:], got[0])
		}
		p.end()
		p = f.start(f.config())
		settle(time.Second)
		if now := server.keys(); len(now) != 4 || !maps.Equal(now[3], got[0]) {
			t.Errorf("after a restart: %v, want %v", now[3:], got[0])
		}
		p.end()
	})
}

func TestKeysThatAreThere(t *testing.T) {
	withFixture(t, func(f *fixture) {
		own := must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
		sec1 := string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: must(x509.MarshalECPrivateKey(own))(t)}))
		if err := os.Mkdir(filepath.Join(f.dir, "keys"), 0o700); err != nil {
			t.Fatal(err)
		}
		f.put("keys/person.key", sec1)
		f.put("keys/other.key", sec1)
		f.put("keys/garbled.key", "garbled")
		f.put("keys/empty.key", "")
		if err := os.Mkdir(filepath.Join(f.dir, "keys/directory.key"), 0o700); err != nil {
			t.Fatal(err)
		}
		server := f.up("10.0.0.1")
		server.asks(key("person", p256), key("other", ed), key("garbled", ed), key("empty", ed), key("directory", ed))
		p := f.start(f.config())
		settle(time.Minute)
		got := server.keys()
		if len(got) != 1 || len(got[0]) != 4 {
			t.Fatalf("handed in %v", got)
		}
		if !own.PublicKey.Equal(parsed(t, got[0]["person"])) || f.file("keys/person.key") != sec1 {
			t.Error("a key made by hand is not used")
		}
		if _, ok := parsed(t, got[0]["other"]).(ed25519.PublicKey); !ok {
			t.Error("a key of the wrong kind is used")
		}
		kept := map[string]string{}
		for _, path := range must(filepath.Glob(filepath.Join(f.dir, "keys", "*.bad-*")))(t) {
			name, _, _ := strings.Cut(filepath.Base(path), ".")
			kept[name] = string(must(os.ReadFile(path))(t))
		}
		if want := map[string]string{"other": sec1, "garbled": "garbled", "empty": ""}; !maps.Equal(kept, want) {
			t.Errorf("put aside: %q, want %q", kept, want)
		}
		os.Remove(filepath.Join(f.dir, "keys/directory.key"))
		settle(11 * time.Second)
		if got := server.keys(); len(got) != 2 || len(got[1]) != 5 {
			t.Errorf("after the directory is gone: %v", got[1:])
		}
		p.end()
	})
}

func TestHostileKeyRequests(t *testing.T) {
	withFixture(t, func(f *fixture) {
		server := f.up("10.0.0.1")
		var many []*nstancev1.KeyRequest
		for i := range 65 {
			many = append(many, key(fmt.Sprint("k", i), ed))
		}
		more := server.asks(many...)
		p := f.start(f.config())
		settle(time.Minute)
		if got := server.keys(); len(got) != 0 {
			t.Errorf("65 keys at once: %v", got)
		}
		more <- []*nstancev1.KeyRequest{
			key("../identity", ed), key("a/b", ed), key("", ed), key(".hidden", ed), key("nul\x00", ed), key(strings.Repeat("a", 300), ed),
			key("unknown", 7), key("unspecified", 0), key("good", ed), key("GOOD", ed), key("good", p256),
		}
		settle(time.Minute)
		got := server.keys()
		if len(got) != 1 || len(got[0]) != 1 || got[0]["good"] == "" {
			t.Errorf("handed in %v", got)
		}
		if entries := must(os.ReadDir(filepath.Join(f.dir, "keys")))(t); len(entries) != 3 { // with the owner record
			t.Errorf("the directory has %v", entries)
		}
		for round := range 600 {
			more <- []*nstancev1.KeyRequest{key("good", []nstancev1.KeyAlgorithm{ed, p256}[round%2])}
			settle(time.Millisecond)
		}
		if entries := must(os.ReadDir(filepath.Join(f.dir, "keys")))(t); len(entries) > 520 {
			t.Errorf("a server made %d files", len(entries))
		}
		p.end()
	})
}

func TestKeysAreHandedInUntilTheServerHasThem(t *testing.T) {
	withFixture(t, func(f *fixture) {
		server := f.up("10.0.0.1")
		server.set(func() { server.submit = func(map[string]string) error { return errors.New("not yet") } })
		more := server.asks(key("web", ed))
		p := f.start(f.config())
		settle(time.Minute)
		if n := len(server.keys()); n < 5 || n > 60 {
			t.Errorf("%d attempts in a minute", n)
		}
		more <- []*nstancev1.KeyRequest{key("other", ed)}
		settle(0)
		if got := server.keys(); got[len(got)-1]["other"] == "" {
			t.Error("a new request waits for the one before it")
		}
		server.set(func() { server.submit = nil })
		settle(11 * time.Second)
		n := len(server.keys())
		settle(time.Minute)
		if got := server.keys(); len(got) != n || got[n-1]["other"] == "" || got[n-1]["web"] != "" {
			t.Errorf("%d attempts after success, the last with %v", len(got)-n, got[n-1])
		}
		p.end()
	})
}
