package docker

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/client"
)

const agentPath = "/usr/local/bin/nstance-agent"

// labelContent is the hash of an image's content, so that it is built once.
const labelContent = "nstance.content"

// BuildAgentImage builds an image that contains only a static agent binary and the folders that
// the agent writes to, and tags it. It runs as AgentUser. The engine is the one at host; empty:
// as the environment configures. It needs no registry or builder. An image with the same tag
// and content is kept; another one is removed unless containers use it.
func BuildAgentImage(ctx context.Context, host, binary, tag string) error {
	api, err := connect(host)
	if err != nil {
		return err
	}
	defer func() { _ = api.Close() }() // idle connections only
	root, err := agentRoot(binary)
	if err != nil {
		return fmt.Errorf("pack image %s: %w", tag, err)
	}
	changes := []string{`ENTRYPOINT ["` + agentPath + `"]`, fmt.Sprintf("USER %d:%d", AgentUser, AgentUser), "WORKDIR " + agentDir}
	hash := sha256.New()
	fmt.Fprintf(hash, "%q", changes)
	_, _ = hash.Write(root.Bytes()) // never fails
	content := hex.EncodeToString(hash.Sum(nil))
	before, err := api.ImageInspect(ctx, tag)
	if err != nil && !errdefs.IsNotFound(err) {
		return fmt.Errorf("inspect image %s: %w", tag, err)
	}
	if err == nil && before.Config != nil && before.Config.Labels[labelContent] == content {
		return nil
	}
	if err := importImage(ctx, api, root, tag, append(changes, "LABEL "+labelContent+"="+content)); err != nil {
		return fmt.Errorf("import image %s: %w", tag, err)
	}
	if before.ID == "" {
		return nil
	}
	_, err = api.ImageRemove(ctx, before.ID, image.RemoveOptions{PruneChildren: true})
	if err != nil && !errdefs.IsConflict(err) && !errdefs.IsNotFound(err) {
		return fmt.Errorf("remove the previous image %s: %w", tag, err)
	}
	return nil
}

func importImage(ctx context.Context, api *client.Client, root io.Reader, tag string, changes []string) error {
	body, err := api.ImageImport(ctx, image.ImportSource{Source: root, SourceName: "-"}, tag, image.ImportOptions{Changes: changes})
	if err != nil {
		return err
	}
	defer body.Close()
	return importResult(body)
}

// importResult reads the engine's progress messages, which may contain an error even if the
// request succeeded.
func importResult(body io.Reader) error {
	d := json.NewDecoder(body)
	for {
		var m struct {
			Error string `json:"error"`
		}
		err := d.Decode(&m)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read the engine's answer: %w", err)
		}
		if m.Error != "" {
			return errors.New(m.Error)
		}
	}
}

// agentRoot packs the image's file system.
func agentRoot(binary string) (*bytes.Buffer, error) {
	program, err := os.ReadFile(binary)
	if err != nil {
		return nil, err
	}
	passwd := fmt.Appendf(nil, "root:x:0:0::/:/\nnonroot:x:%d:%d::%s:/\n", AgentUser, AgentUser, agentDir)
	contents := map[string][]byte{agentPath[1:]: program, "etc/passwd": passwd}
	// Parent folders are listed too: engines create missing ones with access for root only.
	entries := []tar.Header{
		{Name: "etc/", Mode: 0o755, Typeflag: tar.TypeDir},
		{Name: "tmp/", Mode: 0o1777, Typeflag: tar.TypeDir},
		{Name: "usr/", Mode: 0o755, Typeflag: tar.TypeDir},
		{Name: "usr/local/", Mode: 0o755, Typeflag: tar.TypeDir},
		{Name: "usr/local/bin/", Mode: 0o755, Typeflag: tar.TypeDir},
		{Name: "opt/", Mode: 0o755, Typeflag: tar.TypeDir},
		{Name: agentPath[1:], Mode: 0o755, Typeflag: tar.TypeReg, Size: int64(len(program))},
		{Name: "etc/passwd", Mode: 0o644, Typeflag: tar.TypeReg, Size: int64(len(passwd))},
	}
	return pack(append(entries, agentDirs(agentDir[1:]+"/", AgentUser)...), contents)
}

// agentDirs returns the folders owned by the agent, under a prefix that ends in a slash.
func agentDirs(prefix string, user int) []tar.Header {
	owned := func(path string, mode int64) tar.Header {
		return tar.Header{Name: prefix + path, Mode: mode, Typeflag: tar.TypeDir, Uid: user, Gid: user}
	}
	return []tar.Header{owned("", 0o755), owned("identity/", 0o700), owned("keys/", 0o700), owned("recv/", 0o700)}
}

// pack writes an archive without timestamps, so that it is reproducible.
func pack(entries []tar.Header, contents map[string][]byte) (*bytes.Buffer, error) {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, h := range entries {
		if err := w.WriteHeader(&h); err != nil {
			return nil, err
		}
		if _, err := w.Write(contents[h.Name]); err != nil {
			return nil, err
		}
	}
	return &out, w.Close()
}
