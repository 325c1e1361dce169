package release

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// units are how systemd runs what a machine has all the time.
//
//go:embed systemd/*.service
var units embed.FS

// Archive is one archive for plain machines.
type Archive struct {
	OS, Architecture string
	Programs         []string
}

// Archives are those of a release: everything for machines, and for people's own what
// they ask shards with; as far as they hold any of the programs.
func Archives(programs []string) (all []Archive) {
	for _, a := range []Archive{
		{"linux", "amd64", Programs()},
		{"linux", "arm64", Programs()},
		{"darwin", "arm64", []string{"nstance-admin"}},
	} {
		a.Programs = slices.DeleteFunc(a.Programs, func(program string) bool { return !slices.Contains(programs, program) })
		if len(a.Programs) > 0 {
			all = append(all, a)
		}
	}
	return all
}

// sums is the file with the SHA-256 of each archive; what signs it signs them all.
const sums = "SHA256SUMS"

// Dist writes archives into a folder that it makes anew, files that are there already, and
// the sums of all of them. Like images they are the same bytes in every build of a commit.
// It returns the names of what it wrote.
func (b Builder) Dist(ctx context.Context, folder string, archives []Archive, files ...string) (names []string, err error) {
	from, err := b.commit(ctx)
	if err != nil {
		return nil, err
	}
	if err := os.RemoveAll(folder); err != nil {
		return nil, fmt.Errorf("make archives: %w", err)
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return nil, fmt.Errorf("make archives: %w", err)
	}
	var list strings.Builder
	for _, a := range archives {
		name := fmt.Sprintf("nstance_%s_%s_%s", strings.TrimPrefix(from.version, "v"), a.OS, a.Architecture)
		sum, err := b.archive(ctx, from, a, name, filepath.Join(folder, name+".tar.gz"))
		if err != nil {
			return nil, fmt.Errorf("make archive %s: %w", name, err)
		}
		fmt.Fprintf(&list, "%s  %s.tar.gz\n", sum, name)
		names = append(names, name+".tar.gz")
	}
	for _, file := range files {
		body, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("make archives: %w", err)
		}
		name := filepath.Base(file)
		if err := os.WriteFile(filepath.Join(folder, name), body, 0o644); err != nil {
			return nil, fmt.Errorf("make archives: %w", err)
		}
		fmt.Fprintf(&list, "%x  %s\n", sha256.Sum256(body), name)
		names = append(names, name)
	}
	if err := os.WriteFile(filepath.Join(folder, sums), []byte(list.String()), 0o644); err != nil {
		return nil, fmt.Errorf("make archives: %w", err)
	}
	return append(names, sums), nil
}

// archive makes one archive and returns its SHA-256.
func (b Builder) archive(ctx context.Context, from commit, a Archive, name, path string) (string, error) {
	programs, err := os.MkdirTemp("", "nstance-dist-*")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(programs)
	for _, program := range a.Programs {
		if err := b.compile(ctx, from, a, program, filepath.Join(programs, program)); err != nil {
			return "", err
		}
	}
	out, err := os.Create(path)
	if err != nil {
		return "", err
	}
	defer out.Close()
	sum := sha256.New()
	packed, err := gzip.NewWriterLevel(io.MultiWriter(out, sum), gzip.BestCompression)
	if err != nil {
		return "", err
	}
	if err := b.fill(tar.NewWriter(packed), from, a, name, programs); err != nil {
		return "", err
	}
	if err := packed.Close(); err != nil {
		return "", err
	}
	return hex.EncodeToString(sum.Sum(nil)), out.Close()
}

// compile compiles a program as ko does for an image.
func (b Builder) compile(ctx context.Context, from commit, a Archive, program, out string) error {
	f, err := b.flags()
	if err != nil {
		return err
	}
	ldflags := strings.ReplaceAll(strings.Join(f.Ldflags, " "), "{{.Env.VERSION}}", from.version)
	args := slices.Concat([]string{"build"}, f.Flags, []string{"-ldflags=" + ldflags, "-o", out, "./cmd/" + program})
	_, err = b.run(ctx, []string{"GOOS=" + a.OS, "GOARCH=" + a.Architecture}, "go", args...)
	return err
}

// entry is a file of an archive.
type entry struct {
	name string
	mode int64
	body []byte
}

// fill writes an archive's files, in the order of their names.
func (b Builder) fill(w *tar.Writer, from commit, a Archive, name, programs string) error {
	license, err := os.ReadFile(filepath.Join(b.Source, "LICENSE"))
	if err != nil {
		return err
	}
	entries := []entry{{"LICENSE", 0o644, license}}
	for _, program := range a.Programs {
		body, err := os.ReadFile(filepath.Join(programs, program))
		if err != nil {
			return err
		}
		entries = append(entries, entry{"bin/" + program, 0o755, body})
		unit, err := units.ReadFile("systemd/" + program + ".service")
		if err == nil { // the others run in Kubernetes, or for people
			entries = append(entries, entry{"systemd/" + program + ".service", 0o644, unit})
		}
	}
	slices.SortFunc(entries, func(a, b entry) int { return strings.Compare(a.name, b.name) })
	at, err := from.time()
	if err != nil {
		return err
	}
	for _, e := range entries {
		header := &tar.Header{
			Name: name + "/" + e.name, Mode: e.mode, Size: int64(len(e.body)), Typeflag: tar.TypeReg,
			ModTime: at, Format: tar.FormatPAX,
		}
		if err := w.WriteHeader(header); err != nil {
			return err
		}
		if _, err := w.Write(e.body); err != nil {
			return err
		}
	}
	return w.Close()
}

// SignDist signs the sums of a folder of archives.
func (b Builder) SignDist(ctx context.Context, folder string, with Signer) error {
	if err := with.Validate(); err != nil {
		return err
	}
	list, err := filepath.Abs(filepath.Join(folder, sums))
	if err != nil {
		return err
	}
	if err := b.cosign(ctx, append([]string{"sign-blob", list, "--bundle=" + list + ".sigstore.json"}, with.flags()...)...); err != nil {
		return fmt.Errorf("sign %s: %w", list, err)
	}
	return nil
}

// VerifyDist fails unless a trusted signer has signed a folder's sums, and they are those
// of the archives there.
func (b Builder) VerifyDist(ctx context.Context, folder string, trust Trust) error {
	if err := trust.Validate(); err != nil {
		return err
	}
	list, err := filepath.Abs(filepath.Join(folder, sums))
	if err != nil {
		return err
	}
	if err := b.cosign(ctx, append([]string{"verify-blob", list, "--bundle=" + list + ".sigstore.json"}, trust.flags()...)...); err != nil {
		return fmt.Errorf("signature of %s: %w", list, err)
	}
	text, err := os.ReadFile(list)
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(text)) {
		want, name, ok := strings.Cut(strings.TrimSpace(line), "  ")
		if !ok {
			return fmt.Errorf("%s: %.80q is no line of a sum and a name", list, line)
		}
		body, err := os.ReadFile(filepath.Join(folder, filepath.Base(name)))
		if err != nil {
			return err
		}
		if sum := sha256.Sum256(body); hex.EncodeToString(sum[:]) != want {
			return fmt.Errorf("%s is not what %s names", name, list)
		}
	}
	return nil
}
