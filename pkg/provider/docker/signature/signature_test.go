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
	signType = "https://sigstore.dev/cosign/sign/v1"
	inToto   = "application/vnd.in-toto+json"
)

var (
	image   = "sha256:" + strings.Repeat("a1", 32)
	another = "sha256:" + strings.Repeat("b2", 32)
)

// isRepository reports whether a name is that of the image's repository in these tests.
func isRepository(name string) bool { return name == "registry.example/agent" }

// statementNaming returns a statement that names the image in each of the places that signers
// use.
func statementNaming(name, uri, reference string) string {
	subject := map[string]any{"name": name, "uri": uri, "digest": map[string]string{"sha256": strings.TrimPrefix(image, "sha256:")}}
	critical := map[string]any{"identity": map[string]string{"docker-reference": reference}}
	text, _ := json.Marshal(map[string]any{
		"subject": []any{subject}, "predicateType": signType, "predicate": map[string]any{"critical": critical},
	})
	return string(text)
}

// publicPEM returns a public key as in a file.
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

// statement returns an in-toto statement about digests.
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

// ed25519ph is an Ed25519 key that signs the hash of a message, as cosign does.
type ed25519ph struct{ ed25519.PrivateKey }

// sign returns a DSSE signature, by an implementation of its own.
func sign(t testing.TB, signer crypto.Signer, kind, payload string) []byte {
	t.Helper()
	message := []byte("DSSEv1 " + fmt.Sprint(len(kind)) + " " + kind + " " + fmt.Sprint(len(payload)) + " " + payload)
	var opts crypto.SignerOpts = crypto.Hash(0)
	switch signer.(type) {
	case ed25519.PrivateKey:
	case ed25519ph:
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

// bundle returns a bundle as a registry serves it.
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

// TestKeyTypes: each type of key verifies what it signed, and nothing that another key signed.
func TestKeyTypes(t *testing.T) {
	_, ed, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	_, another, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	signers := map[string]crypto.Signer{
		"P-256": newP256(t), "another P-256": newP256(t), "Ed25519": ed, "Ed25519ph": ed25519ph{another}, "RSA": rsaKey,
	}
	payload := statement(signType, image)
	for signed, signer := range signers {
		text := bundle(signature.BundleType, inToto, payload, sign(t, signer, inToto, payload))
		for verified, other := range signers {
			err := parse(t, other.Public()).Verify(image, text, isRepository)
			if signed == verified && err != nil || signed != verified && (err == nil || !strings.Contains(err.Error(), "another key")) {
				t.Errorf("signed with %s, verified with %s: %v", signed, verified, err)
			}
		}
		if (signature.Key{}).Verify(image, text, isRepository) == nil {
			t.Errorf("the zero Key verifies a signature with %s", signed)
		}
	}
}

// TestVerify: only a signature of this image by this key is valid.
func TestVerify(t *testing.T) {
	signer := newP256(t)
	key := parse(t, signer.Public())
	signedBundle := func(media, kind, payload string) []byte {
		return bundle(media, kind, payload, sign(t, signer, kind, payload))
	}
	signed := func(payload string) []byte { return signedBundle(signature.BundleType, inToto, payload) }
	good := statement(signType, image)
	once := sign(t, signer, inToto, good)
	changed := append([]byte(nil), once...)
	changed[len(changed)-1] ^= 1
	for name, c := range map[string]struct {
		bundle []byte
		want   string // empty: valid
	}{
		"one image":             {signed(good), ""},
		"several images":        {signed(statement(signType, another, image)), ""},
		"another image":         {signed(statement(signType, another)), "a signature of another image, " + another},
		"its names":             {signed(statementNaming("registry.example/agent", "registry.example/agent", "registry.example/agent")), ""},
		"another name":          {signed(statementNaming("registry.example/tool", "", "")), "in another repository, \"registry.example/tool\""},
		"another URI":           {signed(statementNaming("registry.example/agent", "oci://b", "")), "in another repository, \"oci://b\""},
		"another reference":     {signed(statementNaming("", "", "c/d")), "in another repository, \"c/d\""},
		"no image":              {signed(statement(signType)), "a signature of another image"},
		"SBOM":                  {signed(statement("https://spdx.dev/Document", image)), "is not a signature"},
		"no predicate type":     {signed(statement("", image)), "which is not a signature"},
		"another payload type":  {signedBundle(signature.BundleType, "text/plain", good), `payload of type "text/plain"`},
		"payload type replaced": {bundle(signature.BundleType, inToto, good, sign(t, signer, "text/plain", good)), "altered"},
		"statement replaced":    {bundle(signature.BundleType, inToto, good, sign(t, signer, inToto, statement(signType, another))), "altered"},
		"signature changed":     {bundle(signature.BundleType, inToto, good, changed), "altered"},
		"signature empty":       {bundle(signature.BundleType, inToto, good, nil), "altered"},
		"no signature":          {bundle(signature.BundleType, inToto, good), "0 signatures: want 1"},
		"two signatures":        {bundle(signature.BundleType, inToto, good, once, once), "2 signatures: want 1"},
		"another bundle format": {signedBundle("application/vnd.dev.sigstore.bundle.v0.4+json", inToto, good), "v0.4+json\": want application/"},
		"no statement":          {signed("[1]"), "not an in-toto statement"},
		"no JSON":               {[]byte("-----BEGIN"), "no signature bundle"},
		"empty":                 {nil, "no signature bundle"},
		"oversized":             {make([]byte, signature.MaxBundle+1), "1048577 bytes: want at most 1048576"},
	} {
		err := key.Verify(image, c.bundle, isRepository)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	for _, digest := range []string{"", "sha256:", strings.ToUpper(image), "sha512:" + strings.Repeat("a1", 64), image + "\n"} {
		if err := key.Verify(digest, signed(good), isRepository); err == nil || !strings.Contains(err.Error(), "hexadecimal") {
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
		"private key": {pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: []byte("x")}), "type PUBLIC KEY"},
		"empty":       {nil, "type PUBLIC KEY"},
		"two keys":    {append(append([]byte(nil), good...), good...), "want one PEM block"},
		"damaged":     {pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: []byte("x")}), "read the public key"},
		"P-384":       {publicPEM(t, curve.Public()), "P-384: want P-256"},
		"1024 bits":   {publicPEM(t, small.Public()), "1024 bits: want 2048 to 8192"},
	} {
		if _, err := signature.ParseKey(c.text); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	if _, err := signature.ParseKey(append(good, "\n\n"...)); err != nil {
		t.Errorf("empty lines after the key: %v", err)
	}
}

// FuzzVerify: a bundle is refused unless the key signed exactly the statement in it.
func FuzzVerify(f *testing.F) {
	signer := newP256(f)
	key := parse(f, signer.Public())
	good := statement(signType, image)
	f.Add(bundle(signature.BundleType, inToto, good, sign(f, signer, inToto, good)))
	f.Add(bundle(signature.BundleType, inToto, good, sign(f, signer, inToto, good)[1:]))
	f.Add(bundle(signature.BundleType, inToto, "{}", []byte("x")))
	f.Add([]byte(`{"mediaType":7,"dsseEnvelope":{"signatures":[{}]}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		if err := key.Verify(another, data, isRepository); err == nil {
			t.Errorf("%q counts as a signature of another image", data)
		}
		var b struct {
			Envelope struct{ Payload []byte } `json:"dsseEnvelope"`
		}
		if err := key.Verify(image, data, isRepository); err == nil && (json.Unmarshal(data, &b) != nil || string(b.Envelope.Payload) != good) {
			t.Errorf("%q counts as a signature", data)
		}
	})
}

// FuzzParseKey: an accepted key can be used, and refuses an empty bundle.
func FuzzParseKey(f *testing.F) {
	f.Add(publicPEM(f, newP256(f).Public()))
	f.Add([]byte("-----BEGIN PUBLIC KEY-----\n-----END PUBLIC KEY-----\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		if key, err := signature.ParseKey(text); err == nil && key.Verify(image, []byte("{}"), isRepository) == nil {
			t.Errorf("%q verifies an empty bundle", text)
		}
	})
}
