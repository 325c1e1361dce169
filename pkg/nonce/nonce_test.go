package nonce_test

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/nstance/nstance/pkg/nonce"
)

var (
	epoch     = time.Date(2030, 5, 1, 12, 0, 0, 0, time.UTC)
	wantAgent = nonce.Want{Kind: nonce.KindAgent, ClusterID: "example", Shard: "dev-1"}
)

func private(n byte) ed25519.PrivateKey {
	seed := make([]byte, ed25519.SeedSize)
	seed[0] = n
	return ed25519.NewKeyFromSeed(seed)
}

func public(n byte) ed25519.PublicKey { return private(n).Public().(ed25519.PublicKey) }

func agentClaims() nonce.Claims {
	return nonce.Claims{
		Kind: nonce.KindAgent, Subject: "knd06awx3x3rs1qsfdc5k3gzk8m2", ClusterID: "example", Tenant: "default",
		Shard: "dev-1", ConfigHash: strings.Repeat("ab", 32), ID: "n1",
		IssuedAt: epoch, NotBefore: epoch, ExpiresAt: epoch.Add(5 * time.Minute),
	}
}

func operatorClaims() nonce.Claims {
	c := agentClaims()
	c.Kind, c.Subject, c.Shard, c.ConfigHash = nonce.KindOperator, "example", "", ""
	return c
}

func mint(t testing.TB, c nonce.Claims) string {
	t.Helper()
	token, err := nonce.Mint(private(1), c)
	if err != nil {
		t.Fatal(err)
	}
	return token
}

func TestRoundTrip(t *testing.T) {
	for want, claims := range map[nonce.Want]nonce.Claims{
		wantAgent: agentClaims(),
		{Kind: nonce.KindOperator, ClusterID: "example", Shard: "dev-1"}: operatorClaims(),
		{Kind: nonce.KindOperator, ClusterID: "example", Shard: "dev-2"}: operatorClaims(),
	} {
		got, err := nonce.Verify(public(1), mint(t, claims), want, epoch)
		if err != nil || got != claims {
			t.Errorf("got %+v, %v, want %+v", got, err, claims)
		}
	}
}

func TestLeeway(t *testing.T) {
	token := mint(t, agentClaims())
	for _, c := range []struct {
		at   time.Duration // from nbf
		want error
	}{
		{-61 * time.Second, nonce.ErrNotYetValid},
		{-60 * time.Second, nil},
		{0, nil},
		{5*time.Minute + 59*time.Second, nil},
		{5*time.Minute + 60*time.Second, nonce.ErrExpired},
		{24 * time.Hour, nonce.ErrExpired},
	} {
		if _, err := nonce.Verify(public(1), token, wantAgent, epoch.Add(c.at)); !errors.Is(err, c.want) {
			t.Errorf("at nbf %+v: got %v, want %v", c.at, err, c.want)
		}
	}
}

// sign signs a token with any claims, header and algorithm.
func sign(t testing.TB, method jwt.SigningMethod, key any, claims jwt.MapClaims) string {
	t.Helper()
	token, err := jwt.NewWithClaims(method, claims).SignedString(key)
	if err != nil {
		t.Fatal(err)
	}
	return token
}

func goodMap() jwt.MapClaims {
	return jwt.MapClaims{
		"kind": "agent", "sub": "knd1", "cluster_id": "example", "tenant": "default", "shard": "dev-1", "jti": "n1",
		"iat": epoch.Unix(), "nbf": epoch.Unix(), "exp": epoch.Add(time.Minute).Unix(),
	}
}

func TestRefusals(t *testing.T) {
	ec, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	good := mint(t, agentClaims())
	parts := strings.Split(good, ".")
	raw := func(s string) string { return base64.RawURLEncoding.EncodeToString([]byte(s)) }
	with := func(claim string, value any) string {
		m := goodMap()
		m[claim] = value
		return sign(t, jwt.SigningMethodEdDSA, private(1), m)
	}
	without := func(claim string) string {
		m := goodMap()
		delete(m, claim)
		return sign(t, jwt.SigningMethodEdDSA, private(1), m)
	}
	changed := func(change func(*nonce.Claims)) string {
		c := agentClaims()
		change(&c)
		return mint(t, c)
	}
	for name, c := range map[string]struct {
		token string
		want  error
		text  string
	}{
		"nothing":            {"", nonce.ErrMalformed, "three base64url parts"},
		"not a token":        {"hello", nonce.ErrMalformed, "three base64url parts"},
		"two parts":          {parts[0] + "." + parts[1], nonce.ErrMalformed, "three base64url parts"},
		"four parts":         {good + ".x", nonce.ErrMalformed, "three base64url parts"},
		"a trailing newline": {good + "\n", nonce.ErrMalformed, "not a valid JWT character"},
		"a newline within":   {good[:20] + "\n" + good[20:], nonce.ErrMalformed, "not a valid JWT character"},
		"padding":            {good + "==", nonce.ErrMalformed, "not a valid JWT character"},
		"header not JSON":    {raw("x") + "." + parts[1] + "." + parts[2], nonce.ErrMalformed, "JSON"},
		"claims not JSON":    {parts[0] + "." + raw("x") + "." + parts[2], nonce.ErrMalformed, "JSON"},
		"too long":           {strings.Repeat("a", 1<<20), nonce.ErrMalformed, "want at most 2048"},
		"alg none":           {sign(t, jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, goodMap()), nonce.ErrAlgorithm, `"none"`},
		"alg None":           {raw(`{"alg":"None"}`) + "." + parts[1] + ".", nonce.ErrAlgorithm, `"None"`},
		"no alg":             {raw(`{}`) + "." + parts[1] + "." + parts[2], nonce.ErrAlgorithm, "nil"},
		"alg not a string":   {raw(`{"alg":1}`) + "." + parts[1] + "." + parts[2], nonce.ErrAlgorithm, `"1"`},
		"HMAC with the key":  {sign(t, jwt.SigningMethodHS256, []byte(public(1)), goodMap()), nonce.ErrAlgorithm, `"HS256"`},
		"ECDSA":              {sign(t, jwt.SigningMethodES256, ec, goodMap()), nonce.ErrAlgorithm, `"ES256"`},
		"another key":        {sign(t, jwt.SigningMethodEdDSA, private(2), goodMap()), nonce.ErrSignature, ""},
		"no signature":       {parts[0] + "." + parts[1] + ".", nonce.ErrSignature, ""},
		"changed claims":     {parts[0] + "." + strings.Split(mint(t, operatorClaims()), ".")[1] + "." + parts[2], nonce.ErrSignature, ""},
		"another cluster": {changed(func(c *nonce.Claims) { c.ClusterID = "other" }), nonce.ErrCluster,
			`it is for "other", this is "example"`},
		"another shard": {changed(func(c *nonce.Claims) { c.Shard = "dev-2" }), nonce.ErrShard, `it is for "dev-2", this is "dev-1"`},
		"an operator's": {mint(t, operatorClaims()), nonce.ErrKind, "operator"},
		"not begun": {changed(func(c *nonce.Claims) { c.NotBefore = epoch.Add(2 * time.Minute) }), nonce.ErrNotYetValid,
			"valid from 2030"},
		"made in the future": {changed(func(c *nonce.Claims) { c.IssuedAt = epoch.Add(2 * time.Minute) }), nonce.ErrNotYetValid,
			"issued at 2030"},
		"over": {changed(func(c *nonce.Claims) { c.NotBefore, c.ExpiresAt = epoch.Add(-time.Hour), epoch.Add(-time.Minute) }),
			nonce.ErrExpired, "valid until 2030"},
		"no claims":            {sign(t, jwt.SigningMethodEdDSA, private(1), jwt.MapClaims{}), nonce.ErrMalformed, "kind"},
		"claims of null":       {sign(t, jwt.SigningMethodEdDSA, private(1), nil), nonce.ErrMalformed, "kind"},
		"no kind":              {without("kind"), nonce.ErrMalformed, `kind ""`},
		"an unknown kind":      {with("kind", "admin"), nonce.ErrMalformed, `kind "admin"`},
		"no subject":           {without("sub"), nonce.ErrMalformed, `sub ""`},
		"no cluster":           {without("cluster_id"), nonce.ErrMalformed, "cluster_id"},
		"no tenant":            {without("tenant"), nonce.ErrMalformed, "tenant"},
		"an agent of no shard": {without("shard"), nonce.ErrMalformed, "shard"},
		"no jti":               {without("jti"), nonce.ErrMalformed, "jti"},
		"no exp":               {without("exp"), nonce.ErrMalformed, "exp"},
		"no nbf":               {without("nbf"), nonce.ErrMalformed, "nbf"},
		"no iat":               {without("iat"), nonce.ErrMalformed, "iat"},
		"exp a string":         {with("exp", "soon"), nonce.ErrMalformed, "JSON"},
		"exp a fraction":       {with("exp", 1e300), nonce.ErrMalformed, "JSON"},
		"exp for ever":         {with("exp", int64(1)<<60), nonce.ErrMalformed, "exp"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := nonce.Verify(public(1), c.token, wantAgent, epoch)
			if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.text) {
				t.Fatalf("got %+v, %v, want %v with %q", got, err, c.want, c.text)
			}
			untimely := errors.Is(c.want, nonce.ErrNotYetValid) || errors.Is(c.want, nonce.ErrExpired)
			if (got != nonce.Claims{}) != untimely {
				t.Errorf("got %+v with %v: want the claims if only the time is wrong", got, err)
			}
			if n := reasons(err); n != 1 {
				t.Errorf("%v is %d reasons at once", err, n)
			}
		})
	}
}

func reasons(err error) (n int) {
	for _, reason := range []error{nonce.ErrMalformed, nonce.ErrAlgorithm, nonce.ErrSignature, nonce.ErrCluster, nonce.ErrKind,
		nonce.ErrShard, nonce.ErrNotYetValid, nonce.ErrExpired} {
		if errors.Is(err, reason) {
			n++
		}
	}
	return n
}

func TestMintRefuses(t *testing.T) {
	for want, change := range map[string]func(*nonce.Claims){
		`kind ""`:             func(c *nonce.Claims) { c.Kind = "" },
		`shard: ""`:           func(c *nonce.Claims) { c.Shard = "" },
		`shard: "A"`:          func(c *nonce.Claims) { c.Kind, c.Subject, c.Shard = nonce.KindOperator, c.ClusterID, "A" },
		`sub "a b"`:           func(c *nonce.Claims) { c.Subject = "a b" },
		`want the cluster id`: func(c *nonce.Claims) { c.Kind, c.Shard = nonce.KindOperator, "" },
		`tenant: "-"`:         func(c *nonce.Claims) { c.Tenant = "-" },
		`cluster_id: ""`:      func(c *nonce.Claims) { c.ClusterID = "" },
		`jti ""`:              func(c *nonce.Claims) { c.ID = "" },
		`config_hash "a b"`:   func(c *nonce.Claims) { c.ConfigHash = "a b" },
		`want all three`:      func(c *nonce.Claims) { c.IssuedAt = time.Time{} },
		`and exp after nbf`:   func(c *nonce.Claims) { c.ExpiresAt = c.NotBefore },
		`exp 253402300800`:    func(c *nonce.Claims) { c.ExpiresAt = time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC) },
	} {
		c := agentClaims()
		change(&c)
		if token, err := nonce.Mint(private(1), c); err == nil || token != "" || !strings.Contains(err.Error(), want) {
			t.Errorf("got %q, %v, want an error with %q", token, err, want)
		}
	}
	if _, err := nonce.Mint(nil, agentClaims()); err == nil {
		t.Error("a nonce was minted without a key")
	}
}

func TestTheLongestNonceFits(t *testing.T) {
	long := strings.Repeat("n", 32)
	c := nonce.Claims{
		Kind: nonce.KindAgent, Subject: strings.Repeat("s", 128), ClusterID: long, Tenant: long, Shard: long,
		ConfigHash: strings.Repeat("h", 128), ID: strings.Repeat("j", 128),
		IssuedAt: epoch, NotBefore: epoch, ExpiresAt: epoch.Add(time.Hour),
	}
	if token := mint(t, c); len(token) > nonce.MaxLength {
		t.Errorf("%d bytes", len(token))
	}
}

func FuzzVerify(f *testing.F) {
	good := mint(f, agentClaims())
	f.Add(good)
	f.Add(mint(f, operatorClaims()))
	f.Add(sign(f, jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, goodMap()))
	f.Add(sign(f, jwt.SigningMethodHS256, []byte(public(1)), goodMap()))
	f.Add(sign(f, jwt.SigningMethodEdDSA, private(2), goodMap()))
	f.Add("..")
	f.Add("e30.bnVsbA.")
	f.Fuzz(func(t *testing.T, token string) {
		claims, err := nonce.Verify(public(1), token, wantAgent, epoch)
		if err == nil {
			// Only tokens from Mint are valid, and in one spelling only.
			if again := mint(t, claims); again != token {
				t.Errorf("%q was taken for %q", token, again)
			}
			return
		}
		if claims != (nonce.Claims{}) || reasons(err) != 1 {
			t.Errorf("got %+v and %d reasons in %v", claims, reasons(err), err)
		}
	})
}

// FuzzClaims uses claims with a valid signature, to reach the code after the signature check.
func FuzzClaims(f *testing.F) {
	f.Add(`{"kind":"agent","sub":"knd1","cluster_id":"example","tenant":"default","shard":"dev-1",` +
		`"jti":"n1","iat":1903867200,"nbf":1903867200,"exp":1903867260}`)
	f.Add(`{"kind":"operator","sub":"example","cluster_id":"example","tenant":"default","jti":"n1","iat":1,"nbf":-1,"exp":9e99}`)
	f.Add(`null`)
	f.Add(`[]`)
	f.Fuzz(func(t *testing.T, claims string) {
		text := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"EdDSA"}`)) + "." + base64.RawURLEncoding.EncodeToString([]byte(claims))
		token := text + "." + base64.RawURLEncoding.EncodeToString(ed25519.Sign(private(1), []byte(text)))
		got, err := nonce.Verify(public(1), token, wantAgent, epoch)
		if err != nil {
			if reasons(err) != 1 {
				t.Errorf("%d reasons in %v", reasons(err), err)
			}
			return
		}
		if got.Kind != nonce.KindAgent || got.ClusterID != "example" || got.Shard != "dev-1" || got.ID == "" ||
			epoch.Before(got.NotBefore.Add(-nonce.Leeway)) || !epoch.Before(got.ExpiresAt.Add(nonce.Leeway)) {
			t.Errorf("%+v was accepted", got)
		}
	})
}

func BenchmarkVerify(b *testing.B) {
	token := mint(b, agentClaims())
	for b.Loop() {
		if _, err := nonce.Verify(public(1), token, wantAgent, epoch); err != nil {
			b.Fatal(err)
		}
	}
}
