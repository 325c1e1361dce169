//go:build integration

package containers

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/pkg/stdcopy"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/retry"
)

// labels are the labels of what a story creates, and of what is created for it.
func (w *World) labels() []string {
	return []string{Label + "=" + w.Story, provider.TagClusterID + "=" + w.Cluster}
}

// containers returns all containers of the story, also dead ones: first its own, then those created
// by its servers, which would replace them while they run.
func (w *World) containers(ctx context.Context) ([]container.Summary, error) {
	var all []container.Summary
	seen := map[string]bool{}
	for _, label := range w.labels() {
		list, err := w.API.ContainerList(ctx, client.ContainerListOptions{All: true, Filters: client.Filters{}.Add("label", label)})
		if err != nil {
			return nil, err
		}
		for _, c := range list.Items {
			if !seen[c.ID] {
				seen[c.ID] = true
				all = append(all, c)
			}
		}
	}
	return all, nil
}

// sweep removes everything of the story. Concurrent removals are no errors.
func (w *World) sweep(ctx context.Context) error {
	errs := w.sweepContainers(ctx)
	ours := client.Filters{}.Add("label", Label+"="+w.Story)
	networks, err := w.API.NetworkList(ctx, client.NetworkListOptions{Filters: ours})
	errs = append(errs, err)
	for _, n := range networks.Items {
		_, err := w.API.NetworkRemove(ctx, n.ID, client.NetworkRemoveOptions{})
		errs = append(errs, err)
	}
	volumes, err := w.API.VolumeList(ctx, client.VolumeListOptions{Filters: ours})
	errs = append(errs, err)
	for _, v := range volumes.Items {
		_, err := w.API.VolumeRemove(ctx, v.Name, client.VolumeRemoveOptions{Force: true})
		errs = append(errs, err)
	}
	for i, err := range errs {
		if errdefs.IsNotFound(err) || errdefs.IsConflict(err) && strings.Contains(err.Error(), "is already in progress") {
			errs[i] = nil
		}
	}
	return errors.Join(append(errs, w.forgetImages(ctx))...)
}

// sweepContainers removes twice: a server may have been creating one while it ended.
func (w *World) sweepContainers(ctx context.Context) (errs []error) {
	for range 2 {
		all, err := w.containers(ctx)
		errs = append(errs, err)
		for _, c := range all {
			_, err := w.API.ContainerRemove(ctx, c.ID, client.ContainerRemoveOptions{Force: true, RemoveVolumes: true})
			errs = append(errs, err)
		}
	}
	// A container that is being removed is still on its network.
	for waited := 0; waited < 300; waited++ {
		if all, err := w.containers(ctx); err != nil || len(all) == 0 || retry.Wait(ctx, 100*time.Millisecond) != nil {
			return append(errs, err)
		}
	}
	return errs
}

// forgetImages removes the product's images that were pulled for the story: each run has a registry
// on another port, so they would never be used again.
func (w *World) forgetImages(ctx context.Context) error {
	images, err := w.API.ImageList(ctx, client.ImageListOptions{})
	if err != nil {
		return err
	}
	ours := regexp.MustCompile(`^127\.0\.0\.1:[0-9]+/` + regexp.QuoteMeta(w.Cluster) + `/`)
	var errs []error
	for _, image := range images.Items {
		for _, reference := range append(image.RepoTags, image.RepoDigests...) {
			if !ours.MatchString(reference) {
				continue
			}
			if _, err := w.API.ImageRemove(ctx, reference, client.ImageRemoveOptions{}); err != nil && !errdefs.IsNotFound(err) {
				errs = append(errs, err)
			}
		}
	}
	return errors.Join(errs...)
}

// left returns the names of what is left of the story.
func (w *World) left(ctx context.Context) (names []string, err error) {
	all, err := w.containers(ctx)
	if err != nil {
		return nil, err
	}
	for _, c := range all {
		names = append(names, "container "+nameOf(c))
	}
	ours := client.Filters{}.Add("label", Label+"="+w.Story)
	networks, err := w.API.NetworkList(ctx, client.NetworkListOptions{Filters: ours})
	if err != nil {
		return nil, err
	}
	for _, n := range networks.Items {
		names = append(names, "network "+n.Name)
	}
	volumes, err := w.API.VolumeList(ctx, client.VolumeListOptions{Filters: ours})
	if err != nil {
		return nil, err
	}
	for _, v := range volumes.Items {
		names = append(names, "volume "+v.Name)
	}
	return names, nil
}

func nameOf(c container.Summary) string {
	if len(c.Names) == 0 {
		return c.ID
	}
	return strings.TrimPrefix(c.Names[0], "/")
}

// logs is the folder for the containers' logs of a failed story.
func (w *World) logs() string { return filepath.Join(w.Root, "temp", "integration", w.Story) }

// logEnd is how many lines of each container's log are printed with the failure.
const logEnd = 15

// saveLogs writes each container's log to a file, and prints its end.
func (w *World) saveLogs(ctx context.Context) {
	all, err := w.containers(ctx)
	if err == nil {
		err = os.MkdirAll(w.logs(), 0o755)
	}
	if err != nil {
		w.Logf("save the containers' logs: %v", err)
		return
	}
	for _, c := range all {
		text, err := w.said(ctx, c.ID)
		path := filepath.Join(w.logs(), nameOf(c)+".log")
		if err == nil {
			err = os.WriteFile(path, text, 0o644)
		}
		lines := strings.Split(strings.TrimSpace(string(text)), "\n")
		w.Logf("%s (%s), in full in %s (%v):\n%s", nameOf(c), c.Status, path, err, strings.Join(lines[max(0, len(lines)-logEnd):], "\n"))
	}
}

// said returns a container's output, stdout and stderr.
func (w *World) said(ctx context.Context, id string) ([]byte, error) {
	log, err := w.API.ContainerLogs(ctx, id, client.ContainerLogsOptions{ShowStdout: true, ShowStderr: true, Timestamps: true})
	if err != nil {
		return nil, fmt.Errorf("read the log of %.12s: %w", id, err)
	}
	defer log.Close()
	var text bytes.Buffer
	_, err = stdcopy.StdCopy(&text, &text, log)
	return text.Bytes(), err
}
