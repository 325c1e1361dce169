package signature_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"strings"
	"testing"

	"github.com/nstance/nstance/pkg/provider/docker/signature"
)

const (
	signs  = "https://sigstore.dev/cosign/sign/v1"
	inToto = "application/vnd.in-toto+json"
)

var (
	image   = "sha256:" + strings.Repeat("a1", 32)
	another = "sha256:" + strings.Repeat("b2", 32)
)

// publicPEM is a key as a file holds it.
func publicPEM(t testing.TB, public crypto.PublicKey) []byte {
	t.Helper()
	der, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
}

func parse(t testing.TB, public crypto.PublicKey) signature.Key {
	t.Helper()
	k, err := signature.ParseKey(publicPEM(t, public))
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// statement is what is signed.
func statement(predicate string, digests ...string) string {
	var subjects []map[string]any
	for _, d := range digests {
		subjects = append(subjects, map[string]any{"name": "", "digest": map[string]string{"sha256": strings.TrimPrefix(d, "sha256:")}})
	}
	text, _ := json.Marshal(map[string]any{
		"_type": "https://in-toto.io/Statement/v1", "subject": subjects, "predicateType": predicate, "predicate": map[string]any{},
	})
	return string(text)
}

// hashed is an Ed25519 key that signs as cosign has it sign.
type hashed struct{ ed25519.PrivateKey }

// sign makes an envelope's signature by the rules of DSSE, spelled out once more.
func sign(t testing.TB, signer crypto.Signer, kind, payload string) []byte {
	t.Helper()
	message := []byte("DSSEv1 " + fmt.Sprint(len(kind)) + " " + kind + " " + fmt.Sprint(len(payload)) + " " + payload)
	var opts crypto.SignerOpts = crypto.Hash(0)
	switch signer.(type) {
	case ed25519.PrivateKey:
	case hashed:
		sum := sha512.Sum512(message)
		message, opts = sum[:], &ed25519.Options{Hash: crypto.SHA512}
	default:
		sum := sha256.Sum256(message)
		message, opts = sum[:], crypto.SHA256
	}
	sig, err := signer.Sign(rand.Reader, message, opts)
	if err != nil {
		t.Fatal(err)
	}
	return sig
}

// bundle is one as a registry serves it.
func bundle(media, kind, payload string, sigs ...[]byte) []byte {
	signatures := []map[string]any{}
	for _, sig := range sigs {
		signatures = append(signatures, map[string]any{"sig": sig, "keyid": ""})
	}
	text, _ := json.Marshal(map[string]any{
		"mediaType":            media,
		"verificationMaterial": map[string]any{"publicKey": map[string]any{"hint": "x"}},
		"dsseEnvelope":         map[string]any{"payload": []byte(payload), "payloadType": kind, "signatures": signatures},
	})
	return text
}

func newP256(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// TestKinds: each kind of key verifies what it signed, and nothing that another one did.
func TestKinds(t *testing.T) {
	_, edwards, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	_, another, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	factors, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	signers := map[string]crypto.Signer{
		"P-256": newP256(t), "another P-256": newP256(t), "Ed25519": edwards, "Ed25519ph": hashed{another}, "RSA": factors,
	}
	payload := statement(signs, image)
	for by, signer := range signers {
		text := bundle(signature.BundleType, inToto, payload, sign(t, signer, inToto, payload))
		for with, other := range signers {
			err := parse(t, other.Public()).Verify(image, text)
			if by == with && err != nil || by != with && (err == nil || !strings.Contains(err.Error(), "another key")) {
				t.Errorf("signed with %s, verified with %s: %v", by, with, err)
			}
		}
		if (signature.Key{}).Verify(image, text) == nil {
			t.Errorf("no key at all verifies a signature with %s", by)
		}
	}
}

// TestWhatCounts: only a signature of this image by this key does.
func TestWhatCounts(t *testing.T) {
	signer := newP256(t)
	key := parse(t, signer.Public())
	by := func(media, kind, payload string) []byte {
		return bundle(media, kind, payload, sign(t, signer, kind, payload))
	}
	good := statement(signs, image)
	once := sign(t, signer, inToto, good)
	changed := append([]byte(nil), once...)
	changed[len(changed)-1] ^= 1
	for name, c := range map[string]struct {
		bundle []byte
		want   string // empty: it counts
	}{
		"a signature":                {by(signature.BundleType, inToto, good), ""},
		"of several images":          {by(signature.BundleType, inToto, statement(signs, another, image)), ""},
		"of another image":           {by(signature.BundleType, inToto, statement(signs, another)), "a signature of another image, " + another},
		"of no image":                {by(signature.BundleType, inToto, statement(signs)), "a signature of another image"},
		"an SBOM":                    {by(signature.BundleType, inToto, statement("https://spdx.dev/Document", image)), "which is no signature"},
		"no type":                    {by(signature.BundleType, inToto, statement("", image)), "which is no signature"},
		"of other bytes":             {by(signature.BundleType, "text/plain", good), `payload of type "text/plain"`},
		"its type changed":           {bundle(signature.BundleType, inToto, good, sign(t, signer, "text/plain", good)), "altered"},
		"a statement put in":         {bundle(signature.BundleType, inToto, good, sign(t, signer, inToto, statement(signs, another))), "altered"},
		"its signature changed":      {bundle(signature.BundleType, inToto, good, changed), "altered"},
		"its signature empty":        {bundle(signature.BundleType, inToto, good, nil), "altered"},
		"no signature in it":         {bundle(signature.BundleType, inToto, good), "0 signatures: want 1"},
		"two in it":                  {bundle(signature.BundleType, inToto, good, once, once), "2 signatures: want 1"},
		"a bundle of another format": {by("application/vnd.dev.sigstore.bundle.v0.4+json", inToto, good), "v0.4+json\": want application/"},
		"no statement":               {by(signature.BundleType, inToto, "[1]"), "no in-toto statement"},
		"no JSON":                    {[]byte("-----BEGIN"), "no signature bundle"},
		"nothing":                    {nil, "no signature bundle"},
		"too long":                   {make([]byte, signature.MaxBundle+1), "1048577 bytes: want at most 1048576"},
	} {
		err := key.Verify(image, c.bundle)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	for _, digest := range []string{"", "sha256:", strings.ToUpper(image), "sha512:" + strings.Repeat("a1", 64), image + "\n"} {
		if err := key.Verify(digest, by(signature.BundleType, inToto, good)); err == nil || !strings.Contains(err.Error(), "hexadecimal") {
			t.Errorf("digest %q: %v", digest, err)
		}
	}
}

func TestParseKey(t *testing.T) {
	curve, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	small, err := rsa.GenerateKey(rand.Reader, 1024)
	if err != nil {
		t.Fatal(err)
	}
	good := publicPEM(t, newP256(t).Public())
	for name, c := range map[string]struct {
		text []byte
		want string
	}{
		"a private key": {pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: []byte("x")}), "type PUBLIC KEY"},
		"nothing":       {nil, "type PUBLIC KEY"},
		"two keys":      {append(append([]byte(nil), good...), good...), "want one PEM block"},
		"damaged":       {pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: []byte("x")}), "read the public key"},
		"P-384":         {publicPEM(t, curve.Public()), "P-384: want P-256"},
		"1024 bits":     {publicPEM(t, small.Public()), "1024 bits: want 2048 to 8192"},
	} {
		if _, err := signature.ParseKey(c.text); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	if _, err := signature.ParseKey(append(good, "\n\n"...)); err != nil {
		t.Errorf("empty lines after the key: %v", err)
	}
}

// FuzzVerify: whatever a registry offers as a bundle is refused, unless the key signed
// the very statement in it.
func FuzzVerify(f *testing.F) {
	signer := newP256(f)
	key := parse(f, signer.Public())
	good := statement(signs, image)
	f.Add(bundle(signature.BundleType, inToto, good, sign(f, signer, inToto, good)))
	f.Add(bundle(signature.BundleType, inToto, good, sign(f, signer, inToto, good)[1:]))
	f.Add(bundle(signature.BundleType, inToto, "{}", []byte("x")))
	f.Add([]byte(`{"mediaType":7,"dsseEnvelope":{"signatures":[{}]}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		if err := key.Verify(another, data); err == nil {
			t.Errorf("%q counts as a signature of an image that nothing was said about", data)
		}
		var b struct {
			Envelope struct{ Payload []byte } `json:"dsseEnvelope"`
		}
		if err := key.Verify(image, data); err == nil && (json.Unmarshal(data, &b) != nil || string(b.Envelope.Payload) != good) {
			t.Errorf("%q counts as a signature", data)
		}
	})
}

// FuzzParseKey: what is taken for a key can be asked.
func FuzzParseKey(f *testing.F) {
	f.Add(publicPEM(f, newP256(f).Public()))
	f.Add([]byte("-----BEGIN PUBLIC KEY-----\n-----END PUBLIC KEY-----\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		if key, err := signature.ParseKey(text); err == nil && key.Verify(image, []byte("{}")) == nil {
			t.Errorf("%q verifies an empty bundle", text)
		}
	})
}
