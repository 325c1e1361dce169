package release

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

// What the bundles about an image state, as in-toto predicates. A verifier that does
// not ask for one of them takes an SBOM for a signature: `cosign verify` does.
const (
	signature = "https://sigstore.dev/cosign/sign/v1"
	sbom      = "spdxjson" // cosign's name for https://spdx.dev/Document
)

// trustedRoot is what cosign wants beside a key to check a bundle. This one trusts no
// certificate authority and no log, so that nothing but the key counts.
const trustedRoot = "images/trusted-root.json"

// Signer says with what something is signed.
type Signer struct {
	// Key is whatever cosign takes: a file, or a reference to a key that a KMS keeps.
	Key string
	// Keyless takes, instead of a key, the identity that the environment proves: in a
	// hosted workflow that is the workflow's. It is written into a public log.
	Keyless bool
}

// Validate says whether it is one of them.
func (s Signer) Validate() error {
	if (s.Key == "") == !s.Keyless {
		return errors.New("what signs: want either a key, or keyless")
	}
	return nil
}

// flags are cosign's.
func (s Signer) flags() []string {
	if s.Keyless {
		return []string{"--new-bundle-format", "--yes"}
	}
	return []string{"--key=" + s.Key, "--new-bundle-format", "--tlog-upload=false", "--yes"}
}

// Trust says whose signature counts.
type Trust struct {
	Key string // the public key, or a reference to it; empty: that of an identity
	// Identity is a pattern of the one in the certificate, Issuer is what vouches for it.
	Identity, Issuer string
}

// Validate says whether it is a key, or an identity with its issuer.
func (t Trust) Validate() error {
	if (t.Key == "") == (t.Identity == "") || t.Key == "" && t.Issuer == "" {
		return errors.New("whose signature counts: want either a key, or an identity and its issuer")
	}
	return nil
}

// flags are cosign's.
func (t Trust) flags() []string {
	if t.Key == "" {
		return []string{"--certificate-identity-regexp=" + t.Identity, "--certificate-oidc-issuer=" + t.Issuer, "--new-bundle-format"}
	}
	return []string{
		"--key=" + t.Key, "--new-bundle-format", "--trusted-root=" + filepath.FromSlash(trustedRoot),
		"--insecure-ignore-tlog=true", "--offline=true",
	}
}

// options are those of every call to a registry: the passwords of `docker login`.
func options(ctx context.Context) []remote.Option {
	return []remote.Option{remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain)}
}

// Sign signs each image of a release, and attests the SBOM of each architecture.
func (b Builder) Sign(ctx context.Context, r Release, with Signer) error {
	if err := with.Validate(); err != nil {
		return err
	}
	flags := with.flags()
	for _, image := range r.Images {
		for _, reference := range image.References() {
			if err := b.cosign(ctx, append([]string{"sign", reference}, flags...)...); err != nil {
				return fmt.Errorf("sign %s: %w", image.Name, err)
			}
		}
		for _, platform := range image.Platforms {
			attest := append([]string{"attest", platform.Reference, "--type=" + sbom, "--predicate=" + platform.SBOM}, flags...)
			if err := b.cosign(ctx, attest...); err != nil {
				return fmt.Errorf("attest the SBOM of %s for %s: %w", image.Name, platform.Architecture, err)
			}
		}
	}
	return nil
}

// Verify fails unless a trusted signer has signed each image of a release and an SBOM for
// each architecture, and every layer is what the signed manifests name.
func (b Builder) Verify(ctx context.Context, r Release, trust Trust) error {
	if err := trust.Validate(); err != nil {
		return err
	}
	if len(r.Images) == 0 {
		return errors.New("there are no images to verify")
	}
	for _, image := range r.Images {
		for _, reference := range image.References() {
			if err := b.VerifyStatement(ctx, reference, signature, trust); err != nil {
				return fmt.Errorf("signature of %s: %w", image.Name, err)
			}
		}
		for _, platform := range image.Platforms {
			if err := b.VerifyStatement(ctx, platform.Reference, sbom, trust); err != nil {
				return fmt.Errorf("SBOM of %s for %s: %w", image.Name, platform.Architecture, err)
			}
		}
		if err := complete(ctx, image.Reference); err != nil {
			return fmt.Errorf("%s: %w", image.Name, err)
		}
	}
	return nil
}

// VerifyStatement fails unless a trusted signer has signed a statement of this type about
// what a reference names.
func (b Builder) VerifyStatement(ctx context.Context, reference, predicate string, trust Trust) error {
	return b.cosign(ctx, append([]string{"verify-attestation", reference, "--type=" + predicate}, trust.flags()...)...)
}

// complete pulls an index with everything in it, and fails where something is not what
// its digest says.
func complete(ctx context.Context, reference string) error {
	ref, err := name.ParseReference(reference)
	if err != nil {
		return err
	}
	index, err := remote.Index(ref, options(ctx)...)
	if err != nil {
		return fmt.Errorf("pull: %w", err)
	}
	if err := validate.Index(index); err != nil {
		return fmt.Errorf("what the registry holds is not what was signed: %w", err)
	}
	return nil
}

// Keys makes a pair of keys in the folder keys, without a password, unless there is
// one. It is for trying things out: a release's key is kept elsewhere.
func (b Builder) Keys(ctx context.Context, keys string) (private, public string, err error) {
	prefix, err := filepath.Abs(filepath.Join(keys, "cosign"))
	if err != nil {
		return "", "", err
	}
	private, public = prefix+".key", prefix+".pub"
	if _, err := os.Stat(private); err == nil {
		return private, public, nil
	}
	if err := os.MkdirAll(keys, 0o700); err != nil {
		return "", "", fmt.Errorf("make keys: %w", err)
	}
	_, err = b.tool(ctx, "cosign", []string{"COSIGN_PASSWORD="}, "generate-key-pair", "--output-key-prefix="+prefix)
	return private, public, err
}

// cosign starts cosign. A key without a password needs no terminal to say so.
func (b Builder) cosign(ctx context.Context, args ...string) error {
	var env []string
	if _, ok := os.LookupEnv("COSIGN_PASSWORD"); !ok {
		env = []string{"COSIGN_PASSWORD="}
	}
	_, err := b.tool(ctx, "cosign", env, args...)
	return err
}
