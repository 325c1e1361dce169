//go:build integration

package mainjob

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"
)

// TestBadInput is story 9: each invalid input gets one clear error, and changes nothing.
func TestBadInput(t *testing.T) {
	s := up(t, "process", false)
	before := append(s.running("dev-1"), s.running("dev-2")...)
	minted := time.Now()
	short := strings.TrimSpace(s.admin("cluster", "nonce", "--expiry", "1s"))

	story := func(name string, tell func(*stack)) {
		t.Run(name, func(t *testing.T) { tell(s.in(t)) })
	}
	story("09 configs", badConfigs)
	story("09 a config that turned invalid", brokenConfig)
	story("09 sizes", badSizes)
	story("09 nonces", badNonces)
	story("09 certificates", badCertificates)
	story("09 a message of 100 MB", hugeMessage)
	story("09 a server that can't start", badStarts)
	story("09 an expired nonce", func(s *stack) {
		const leeway = 60 * time.Second
		s.sleep("the allowed difference between the clocks of two hosts", time.Until(minted.Add(leeway+3*time.Second)))
		_, err := s.registerOperator(short, newKey(s.t))
		s.refused(err, codes.PermissionDenied, "expired")
	})

	if after := append(s.running("dev-1"), s.running("dev-2")...); !slices.Equal(before, after) {
		t.Errorf("bad input changed the fleet from %v to %v", before, after)
	}
}

// refused checks the code and the text of an error.
func (s *stack) refused(err error, code codes.Code, text string) {
	s.t.Helper()
	if status.Code(err) != code || !strings.Contains(status.Convert(err).Message(), text) {
		s.t.Errorf("want %s with %q, have %v", code, text, err)
	}
}

func badConfigs(s *stack) {
	good, err := os.ReadFile(filepath.Join(root(s.t), "examples", "dev", "dev-1.jsonc"))
	if err != nil {
		s.t.Fatal(err)
	}
	for _, c := range []struct{ name, old, new, want string }{
		{"malformed", `"templates": {`, `"templates": [`, "line"},
		{"unknown field", `"kind": "knd", "arch"`, `"kynd": "knd", "arch"`, "templates.knd.kynd"},
		{"dangling reference", `"subnet_pool": "workers"`, `"subnet_pool": "wrkers"`, `no such subnet pool "wrkers"`},
		{"out of range", `"size": 2`, `"size": -1`, "groups.default.web.size"},
	} {
		bad := bytes.Replace(good, []byte(c.old), []byte(c.new), 1)
		if bytes.Equal(bad, good) {
			s.t.Fatalf("%s: the example has no %s", c.name, c.old)
		}
		file := filepath.Join(s.t.TempDir(), "config.jsonc")
		if err := os.WriteFile(file, bad, 0o600); err != nil {
			s.t.Fatal(err)
		}
		for _, cmd := range [][]string{{"nstance-server", "--validate", file}, {"nstance-admin", "config", "validate", file}} {
			out, err := exec.Command(filepath.Join(s.bin, cmd[0]), cmd[1:]...).CombinedOutput()
			if err == nil || !strings.Contains(string(out), c.want) {
				s.t.Errorf("%s: %s: want an error with %q, have %v:\n%s", c.name, cmd[0], c.want, err, out)
			}
		}
	}
}

// brokenConfig breaks the config in the bucket and restarts the server, which must run the last
// accepted one, report that, and touch no instance.
func brokenConfig(s *stack) {
	file := filepath.Join(s.temp, "dev-s3", "config", "dev-1.jsonc")
	good, err := os.ReadFile(file)
	if err != nil {
		s.t.Fatal(err)
	}
	before := s.running("dev-1")
	bad := bytes.Replace(good, []byte(`"workers"`), []byte(`"wrkers"`), 1)
	if err := os.WriteFile(file, bad, 0o644); err != nil {
		s.t.Fatal(err)
	}
	s.dev("kill", "dev-1")
	s.dev("start", "dev-1")
	s.settle("dev-1", 2)
	out := s.admin("config", "status", "--shard", "dev-1", "-o", "json")
	if !strings.Contains(out, `"running_applied": true`) || !strings.Contains(out, "wrkers") {
		s.t.Errorf("config status does not say what is wrong: %s", out)
	}
	if after := s.running("dev-1"); !slices.Equal(before, after) {
		s.t.Errorf("an invalid config changed the fleet from %v to %v", before, after)
	}
	if err := os.WriteFile(file, good, 0o644); err != nil {
		s.t.Fatal(err)
	}
	s.dev("kill", "dev-1")
	s.dev("start", "dev-1")
	s.settle("dev-1", 2)
}

func badSizes(s *stack) {
	for _, c := range []struct {
		size, want string
	}{{"-1", "-1"}, {"1000000000", "size"}, {"two", "two"}, {"+1", "+1"}} {
		out, errOut, code := s.try("group", "scale", "--shard", "dev-1", "web", c.size)
		if code == 0 || !strings.Contains(errOut, c.want) {
			s.t.Errorf("scale to %s: exit %d, %s%s", c.size, code, out, errOut)
		}
	}
	if g, _ := s.web("dev-1"); g.Size != 2 {
		s.t.Errorf("want size 2 as before, have %d", g.Size)
	}
}

func newKey(t *testing.T) ed25519.PrivateKey {
	t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// pool returns a pool with the cluster's CA.
func (s *stack) pool() *x509.CertPool {
	s.t.Helper()
	body, err := os.ReadFile(filepath.Join(s.temp, "admin", "ca.crt"))
	if err != nil {
		s.t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(body)
	return pool
}

func (s *stack) dial(port int, certs ...tls.Certificate) *grpc.ClientConn {
	s.t.Helper()
	conn, err := grpc.NewClient(fmt.Sprintf("127.0.0.1:%d", port), grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{
		RootCAs: s.pool(), Certificates: certs, MinVersion: tls.VersionTLS13,
	})))
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { conn.Close() })
	return conn
}

func (s *stack) registerOperator(nonce string, key ed25519.PrivateKey) (*nstancev1.RegisterOperatorResponse, error) {
	s.t.Helper()
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		s.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return nstancev1.NewRegistrationServiceClient(s.dial(8992)).RegisterOperator(ctx, &nstancev1.RegisterOperatorRequest{
		Nonce: nonce, PublicKey: string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})),
	})
}

func badNonces(s *stack) {
	nonce := strings.TrimSpace(s.admin("cluster", "nonce"))
	key := newKey(s.t)
	for range 2 { // the same key may be used again: a lost reply must not cost the nonce
		if _, err := s.registerOperator(nonce, key); err != nil {
			s.t.Fatalf("register with a good nonce: %v", err)
		}
	}
	_, err := s.registerOperator(nonce, newKey(s.t))
	s.refused(err, codes.PermissionDenied, "another key")

	claims := func(cluster string) jwt.MapClaims {
		now := time.Now().Unix()
		return jwt.MapClaims{
			"kind": "operator", "sub": cluster, "cluster_id": cluster, "tenant": "default",
			"jti": "opr" + s.running("dev-1")[0][3:], "iat": now, "nbf": now, "exp": now + 600,
		}
	}
	sign := func(method jwt.SigningMethod, key any, c jwt.MapClaims) string {
		token, err := jwt.NewWithClaims(method, c).SignedString(key)
		if err != nil {
			s.t.Fatal(err)
		}
		return token
	}
	for name, token := range map[string]string{
		"signed by another key":        sign(jwt.SigningMethodEdDSA, newKey(s.t), claims("example-cluster")),
		"of another cluster":           sign(jwt.SigningMethodEdDSA, newKey(s.t), claims("other-cluster")),
		"alg none":                     sign(jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, claims("example-cluster")),
		"signed with the wrong method": sign(jwt.SigningMethodHS256, []byte("secret"), claims("example-cluster")),
		"garbage":                      base64.RawURLEncoding.EncodeToString([]byte("garbage")),
		"empty":                        "",
	} {
		_, err := s.registerOperator(token, newKey(s.t))
		if status.Code(err) != codes.PermissionDenied {
			s.t.Errorf("a nonce %s: want PERMISSION_DENIED, have %v", name, err)
		}
		s.t.Logf("a nonce %s: %v", name, err)
	}
}

func badCertificates(s *stack) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	list := func(certs ...tls.Certificate) error {
		_, err := nstancev1.NewOperatorServiceClient(s.dial(8993, certs...)).ListGroups(ctx, &nstancev1.ListGroupsRequest{})
		return err
	}
	identity := filepath.Join(s.temp, "agents", "dev-1", s.running("dev-1")[0], "identity")
	agent, err := tls.LoadX509KeyPair(filepath.Join(identity, "identity.crt"), filepath.Join(identity, "identity.key"))
	if err != nil {
		s.t.Fatal(err)
	}
	s.refused(list(agent), codes.PermissionDenied, "operator")
	if err := list(); status.Code(err) != codes.Unavailable {
		s.t.Errorf("no certificate: want the handshake to fail, have %v", err)
	}
	if err := list(selfSigned(s.t)); status.Code(err) != codes.Unavailable {
		s.t.Errorf("another CA: want the handshake to fail, have %v", err)
	}

	// Another tenant, which has to exist, sees nothing of this one.
	other := filepath.Join(s.t.TempDir(), "identity")
	register := []string{"cluster", "register-operator", "--tenant", "other", "--output-dir", other}
	if _, errOut, code := s.try(register...); code == 0 || !strings.Contains(errOut, `"other" is not declared in the config of any shard`) {
		s.t.Errorf("an operator of a tenant that is not declared: exit %d, %s", code, errOut)
	}
	s.reconfigure("dev-1", `"groups": {`, `"tenants": { "other": {} }, "groups": {`)
	s.admin(register...)
	if out := s.admin("group", "list", "-o", "json", "--shard", "dev-1", "--identity-dir", other); strings.TrimSpace(out) != "[]" {
		s.t.Errorf("tenant other sees groups: %s", out)
	}
	_, errOut, code := s.try("instance", "status", s.running("dev-1")[0], "--shard", "dev-1", "--identity-dir", other)
	if code == 0 || !strings.Contains(errOut, "no such instance") {
		s.t.Errorf("tenant other asks for an instance: exit %d, %s", code, errOut)
	}
}

func selfSigned(t *testing.T) tls.Certificate {
	t.Helper()
	key := newKey(t)
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: serial(t), NotBefore: time.Now().Add(-time.Minute), NotAfter: time.Now().Add(time.Hour),
	}, &x509.Certificate{SerialNumber: serial(t)}, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

func hugeMessage(s *stack) {
	_, err := s.registerOperator(strings.Repeat("x", 100<<20), newKey(s.t))
	if status.Code(err) != codes.ResourceExhausted {
		s.t.Errorf("want RESOURCE_EXHAUSTED, have %.200v", err)
	}
	s.settle("dev-1", 2)
}

func badStarts(s *stack) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	server := func(env []string, args ...string) *exec.Cmd {
		cmd := exec.CommandContext(ctx, filepath.Join(s.bin, "nstance-server"), append([]string{
			"--shard", "dev-1", "--id", "extra", "--storage-bucket", "dev", "--cache-dir", s.t.TempDir(), "--advertise-host", "127.0.0.1",
		}, args...)...)
		cmd.Env = env
		return cmd
	}
	free := []string{
		"--election-addr", "127.0.0.1:0", "--registration-addr", "127.0.0.1:0", "--operator-addr", "127.0.0.1:0", "--agent-addr", "127.0.0.1:0",
	}

	// Ports that are in use end the process, with the field and the address.
	out, err := server(s.env, "--health-addr", "127.0.0.1:8990").CombinedOutput()
	if err == nil || !strings.Contains(string(out), "127.0.0.1:8990 is already in use") {
		s.t.Errorf("health port taken: %v\n%s", err, out)
	}
	out, err = server(s.env, "--health-addr", "127.0.0.1:9790", "--agent-addr", "127.0.0.1:8994").CombinedOutput()
	if err == nil || !strings.Contains(string(out), "is already in use") {
		s.t.Errorf("port taken: %v\n%s", err, out)
	}

	// Temporary problems are retried, with the part in the health answer and the reason in the log.
	for name, c := range map[string]struct{ key, want string }{
		"missing encryption key": {"", "NSTANCE_ENCRYPTION_KEY"},
		"short encryption key":   {"NSTANCE_ENCRYPTION_KEY=short", "32"},
		"another encryption key": {"NSTANCE_ENCRYPTION_KEY=thisisanother32bytekey1234567890", "decrypt"},
	} {
		env := slices.DeleteFunc(slices.Clone(s.env), func(kv string) bool { return strings.HasPrefix(kv, "NSTANCE_ENCRYPTION_KEY=") })
		cmd := server(append(env, c.key), append(free, "--health-addr", "127.0.0.1:9790")...)
		log := filepath.Join(s.t.TempDir(), "log")
		out, err := os.Create(log)
		if err != nil {
			s.t.Fatal(err)
		}
		cmd.Stderr = out
		if err := cmd.Start(); err != nil {
			s.t.Fatal(err)
		}
		s.eventually(name, func() (bool, string) {
			code, body := get("http://127.0.0.1:9790/health")
			said, _ := os.ReadFile(log)
			return code == http.StatusServiceUnavailable && strings.Contains(body, "cluster secrets") && !strings.Contains(body, c.want) &&
				strings.Contains(string(said), c.want), body
		})
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		out.Close()
	}
}

func get(url string) (int, string) {
	resp, err := http.Get(url)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(body)
}

func serial(t *testing.T) *big.Int {
	t.Helper()
	n, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		t.Fatal(err)
	}
	return n
}
