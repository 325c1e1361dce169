package registry

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/provider/docker/signature"
)

// maxBundles is how many bundles about one image are read: whoever may write to the
// registry can add as many as they like.
const maxBundles = 64

// Verify fails, as provider.ErrInvalid and saying why, unless key has signed the image
// that reference names by its digest. It asks by the referrers API, and by the tag
// that stands in for it in registries that have none.
func (c *Client) Verify(ctx context.Context, reference string, key signature.Key) error {
	image, err := name.NewDigest(reference)
	if err != nil {
		return fmt.Errorf("%w: image %.200s: %w", provider.ErrInvalid, reference, err)
	}
	candidates, err := c.candidates(ctx, image)
	if err != nil {
		return fmt.Errorf("ask for the signature of image %s: %w", reference, kind(err))
	}
	var against []string
	for _, of := range candidates[:min(len(candidates), maxBundles)] {
		text, err := c.bundle(ctx, image.Context().Digest(of.Digest.String()))
		switch {
		case errors.Is(err, errNoBundle):
			continue
		case err == nil:
			err = key.Verify(image.DigestStr(), text)
		case !damaged(err):
			return fmt.Errorf("read a signature of image %s: %w", reference, kind(err))
		}
		if err == nil {
			return nil
		}
		if !slices.Contains(against, err.Error()) {
			against = append(against, err.Error())
		}
	}
	return fmt.Errorf("%w: image %s has no signature by the key of options.verify_key: %s",
		provider.ErrInvalid, reference, reasons(against, len(candidates)))
}

// reasons says why none of the candidates counts.
func reasons(against []string, candidates int) string {
	const told = 3
	switch {
	case len(against) == 0 && candidates <= maxBundles:
		return "the registry has none at all for it"
	case candidates > maxBundles:
		return fmt.Sprintf("none of the first %d of %d manifests about it in the registry is one", maxBundles, candidates)
	case len(against) > told:
		against = append(against[:told:told], "…")
	}
	return "the registry has " + strings.Join(against, "; ")
}

// candidates are the manifests about an image that may hold a signature, those that
// say so first. What they say is a hint only.
func (c *Client) candidates(ctx context.Context, image name.Digest) ([]v1.Descriptor, error) {
	referrers, err := remote.Referrers(image, c.options(ctx)...)
	if err != nil {
		return nil, err
	}
	index, err := referrers.IndexManifest()
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(index.Manifests, func(a, b v1.Descriptor) int { return rank(a) - rank(b) })
	return index.Manifests, nil
}

// rank orders candidates by what they say of themselves. Not each registry passes on
// the annotation, or the type.
func rank(d v1.Descriptor) int {
	switch says := d.Annotations["dev.sigstore.bundle.predicateType"]; {
	case says == signature.PredicateType:
		return 0
	case says == "" && d.ArtifactType == signature.BundleType:
		return 1
	case says == "":
		return 2
	default:
		return 3
	}
}

// damaged reports whether err is about what a registry holds, as opposed to the way to
// it. What is not the bytes that its digest names the library tells in words only.
func damaged(err error) bool {
	if status(err) != 0 { // the words are the registry's then
		return errors.Is(kind(err), provider.ErrInvalid)
	}
	return strings.Contains(err.Error(), "error verifying") || strings.Contains(err.Error(), "does not match requested digest")
}

// errBundle is provider.ErrInvalid about a manifest that should hold a bundle.
func errBundle(format string, args ...any) error {
	return fmt.Errorf("%w: %w", provider.ErrInvalid, fmt.Errorf(format, args...))
}

// errNoBundle says that a manifest about an image holds something else.
var errNoBundle = errors.New("no signature bundle")

// bundle reads the bundle that a manifest holds.
func (c *Client) bundle(ctx context.Context, manifest name.Digest) ([]byte, error) {
	options := c.options(ctx)
	got, err := remote.Get(manifest, options...)
	if err != nil {
		return nil, err
	}
	if !got.MediaType.IsImage() {
		return nil, errNoBundle
	}
	image, err := v1.ParseManifest(strings.NewReader(string(got.Manifest)))
	if err != nil {
		return nil, errBundle("a manifest that can't be read: %w", err)
	}
	if len(image.Layers) != 1 || image.Layers[0].MediaType != signature.BundleType {
		return nil, errNoBundle
	}
	layer, err := remote.Layer(manifest.Context().Digest(image.Layers[0].Digest.String()), options...)
	if err != nil {
		return nil, err
	}
	body, err := layer.Compressed()
	if err != nil {
		return nil, err
	}
	defer body.Close()
	// One byte more tells what is too long from what just fits.
	return io.ReadAll(io.LimitReader(body, signature.MaxBundle+1))
}
