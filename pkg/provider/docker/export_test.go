package docker

import (
	"context"
	"fmt"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/image"
)

// RemoveImage removes an image by its name. A missing one is no error; one in use is.
func RemoveImage(ctx context.Context, host, tag string) error {
	api, err := connect(host)
	if err != nil {
		return err
	}
	defer func() { _ = api.Close() }() // idle connections only
	if _, err := api.ImageRemove(ctx, tag, image.RemoveOptions{PruneChildren: true}); err != nil && !errdefs.IsNotFound(err) {
		return fmt.Errorf("remove image %s: %w", tag, err)
	}
	return nil
}
