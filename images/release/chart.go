package release

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// What installs the operator, in a checkout.
const (
	chartSource = "charts/nstance-operator"
	components  = "config/clusterctl/infrastructure-components.yaml"
	metadata    = "config/clusterctl/metadata.yaml"
)

// developed is the operator's image before a release names it.
const developed = "ghcr.io/nstance/nstance-operator"

// Chart writes what installs the operator into a folder that it makes anew, and returns
// the paths: the chart's package first, then what clusterctl reads. All of it has the
// version of the release, and names the operator's image by its digest.
func (b Builder) Chart(ctx context.Context, r Release, folder string) ([]string, error) {
	from, err := b.commit(ctx)
	if err != nil {
		return nil, fmt.Errorf("package the chart: %w", err)
	}
	reference, err := from.operator(r)
	if err != nil {
		return nil, fmt.Errorf("package the chart: %w", err)
	}
	into, err := filepath.Abs(folder)
	if err == nil {
		err = os.RemoveAll(into)
	}
	if err == nil {
		err = os.MkdirAll(into, 0o755)
	}
	if err != nil {
		return nil, fmt.Errorf("package the chart: %w", err)
	}
	path, err := b.pack(ctx, from, reference, into)
	if err != nil {
		return nil, fmt.Errorf("package the chart: %w", err)
	}
	paths := []string{path}
	for _, file := range []string{components, metadata} {
		text, err := os.ReadFile(filepath.Join(b.Source, filepath.FromSlash(file)))
		if err != nil {
			return nil, fmt.Errorf("write what clusterctl reads: %w", err)
		}
		path := filepath.Join(into, filepath.Base(file))
		if err := os.WriteFile(path, text, 0o644); err != nil {
			return nil, fmt.Errorf("write what clusterctl reads: %w", err)
		}
		if file == components {
			if err := replace(path, "image: "+developed+":dev\n", "image: "+reference+"\n"); err != nil {
				return nil, fmt.Errorf("write what clusterctl reads: %w", err)
			}
		}
		paths = append(paths, path)
	}
	return paths, nil
}

// operator is the reference of a release's operator, which has to be built from the commit.
func (c commit) operator(r Release) (string, error) {
	i := slices.IndexFunc(r.Images, func(i Image) bool { return i.Name == "nstance-operator" })
	if i < 0 {
		return "", errors.New("the operator's image was not built")
	}
	if c.hash != r.Commit || c.version != r.Version {
		return "", fmt.Errorf("the operator's image is of %s (commit %s), and this is %s (%s): run `make images` again",
			r.Version, r.Commit, c.version, c.hash)
	}
	return r.Images[i].Reference, nil
}

// pack packages the chart and returns the package's path.
func (b Builder) pack(ctx context.Context, from commit, reference, into string) (string, error) {
	repository, digest, _ := strings.Cut(reference, "@")
	version := strings.TrimPrefix(from.version, "v")
	if !tagged.MatchString(from.version) {
		version = "0.0.0-g" + version // a commit without a tag; digits alone may not begin with 0
	}
	work, err := os.MkdirTemp("", "nstance-chart-*")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(work)
	copied := filepath.Join(work, "nstance-operator")
	if err := os.CopyFS(copied, os.DirFS(filepath.Join(b.Source, filepath.FromSlash(chartSource)))); err != nil {
		return "", err
	}
	err = replace(filepath.Join(copied, "values.yaml"),
		"  repository: "+developed+"\n", "  repository: "+repository+"\n", "  digest: \"\"\n", "  digest: "+digest+"\n")
	if err != nil {
		return "", err
	}
	if err := from.backdate(copied); err != nil {
		return "", err
	}
	_, err = b.tool(ctx, "helm", nil, "package", copied, "--version="+version, "--app-version="+version, "--destination="+into)
	return filepath.Join(into, "nstance-operator-"+version+".tgz"), err
}

// backdate gives all that is in a folder the time of the commit, which Helm packs too.
func (c commit) backdate(folder string) error {
	at, err := c.time()
	if err != nil {
		return err
	}
	return filepath.WalkDir(folder, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Chtimes(path, at, at)
	})
}

// time is when the commit was made.
func (c commit) time() (time.Time, error) {
	seconds, err := strconv.ParseInt(c.epoch, 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("time of the commit: %w", err)
	}
	return time.Unix(seconds, 0).UTC(), nil
}

// digestLine is where Helm says what it pushed.
var digestLine = regexp.MustCompile(`(?m)^Digest: (sha256:[0-9a-f]{64})$`)

// PushChart pushes a package of a release to repository/nstance-operator, signs what the
// registry then holds, by its digest, verifies that, and returns the reference.
func (b Builder) PushChart(ctx context.Context, r Release, path, repository string, with Signer, trust Trust) (string, error) {
	if err := errors.Join(with.Validate(), trust.Validate()); err != nil {
		return "", err
	}
	args := []string{"push", path, "oci://" + repository}
	if local(repository) {
		args = append(args, "--plain-http")
	} else if r.Local() {
		return "", fmt.Errorf("push the chart to %s: the image that it installs is on this machine only: run `make images IMAGE_REPO=…`",
			repository)
	}
	said, err := b.tool(ctx, "helm", nil, args...)
	if err != nil {
		return "", fmt.Errorf("push the chart: %w", err)
	}
	digest := digestLine.FindStringSubmatch(said)
	if digest == nil {
		return "", fmt.Errorf("push the chart: Helm does not say by which digest: %q", said)
	}
	reference := repository + "/nstance-operator@" + digest[1]
	if err := b.cosign(ctx, append([]string{"sign", reference}, with.flags()...)...); err != nil {
		return "", fmt.Errorf("sign the chart: %w", err)
	}
	if err := b.VerifyStatement(ctx, reference, signature, trust); err != nil {
		return "", fmt.Errorf("signature of the chart: %w", err)
	}
	return reference, nil
}

// replace replaces texts in a file, old and new in turns; each old one has to be there
// once.
func replace(file string, pairs ...string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	changed := string(text)
	for i := 0; i < len(pairs); i += 2 {
		if strings.Count(changed, pairs[i]) != 1 {
			return fmt.Errorf("%s: %q is not there once", filepath.Base(file), strings.TrimSpace(pairs[i]))
		}
		changed = strings.Replace(changed, pairs[i], pairs[i+1], 1)
	}
	return os.WriteFile(file, []byte(changed), 0o644)
}
