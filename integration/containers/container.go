//go:build integration

package containers

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/network"
	"github.com/moby/moby/client"
	"github.com/testcontainers/testcontainers-go"
)

// At is a container's place on a network of its story.
type At struct {
	Network Network
	Nth     int // its Address there
}

// Container is a container of a story.
type Container struct {
	ID      string
	Name    string     // its name on its network
	Address netip.Addr // on its first network; it does not change

	api *client.Client
}

// Run starts a container, and fails the test unless it becomes ready. Other containers on its
// network reach it by its name.
func (w *World) Run(name, image string, at At, options ...testcontainers.ContainerCustomizer) *Container {
	w.Helper()
	options = append(w.options(name, at), options...)
	made, err := testcontainers.Run(w.Context(), image, options...)
	return w.adopt(made, err, name, at)
}

// options are the options of all containers of a story.
func (w *World) options(name string, at At) []testcontainers.ContainerCustomizer {
	return []testcontainers.ContainerCustomizer{
		testcontainers.WithName(w.Cluster + "-" + name),
		testcontainers.WithLabels(map[string]string{Label: w.Story}),
		testcontainers.WithLogger(quiet{}),
		testcontainers.WithHostConfigModifier(func(host *container.HostConfig) { host.NetworkMode = container.NetworkMode(at.Network.Name) }),
		testcontainers.WithEndpointSettingsModifier(func(of map[string]*network.EndpointSettings) {
			of[at.Network.Name] = endpoint(name, at.Network.Address(at.Nth))
		}),
	}
}

// quiet discards testcontainers' log of its own work, which does not matter if the test passes.
type quiet struct{}

func (quiet) Printf(string, ...any) {}

// adopt wraps a container that testcontainers created.
func (w *World) adopt(made testcontainers.Container, err error, name string, at At) *Container {
	w.Helper()
	if err != nil {
		w.Fatalf("start the container %s: %v", name, err)
	}
	return &Container{ID: made.GetContainerID(), Name: name, Address: at.Network.Address(at.Nth), api: w.API}
}

func endpoint(alias string, address netip.Addr) *network.EndpointSettings {
	return &network.EndpointSettings{Aliases: []string{alias}, IPAMConfig: &network.EndpointIPAMConfig{IPv4Address: address}}
}

func (c *Container) endpoint() *network.EndpointSettings { return endpoint(c.Name, c.Address) }

// Signal sends a signal, such as TERM or KILL, and does not wait.
func (c *Container) Signal(ctx context.Context, signal string) error {
	_, err := c.api.ContainerKill(ctx, c.ID, client.ContainerKillOptions{Signal: signal})
	return c.wrap("send "+signal+" to", err)
}

// Ended waits until none of its processes runs.
func (c *Container) Ended(ctx context.Context) error {
	waiting := c.api.ContainerWait(ctx, c.ID, client.ContainerWaitOptions{Condition: container.WaitConditionNotRunning})
	select {
	case <-waiting.Result:
		return nil
	case err := <-waiting.Error:
		return c.wrap("wait for the end of", err)
	}
}

// Start starts a container that ended.
func (c *Container) Start(ctx context.Context) error {
	_, err := c.api.ContainerStart(ctx, c.ID, client.ContainerStartOptions{})
	return c.wrap("start", err)
}

// Pause freezes all of its processes until Unpause.
func (c *Container) Pause(ctx context.Context) error {
	_, err := c.api.ContainerPause(ctx, c.ID, client.ContainerPauseOptions{})
	return c.wrap("pause", err)
}

// Unpause continues them.
func (c *Container) Unpause(ctx context.Context) error {
	_, err := c.api.ContainerUnpause(ctx, c.ID, client.ContainerUnpauseOptions{})
	return c.wrap("unpause", err)
}

// Inspect returns the engine's description of it.
func (c *Container) Inspect(ctx context.Context) (container.InspectResponse, error) {
	said, err := c.api.ContainerInspect(ctx, c.ID, client.ContainerInspectOptions{})
	return said.Container, c.wrap("inspect", err)
}

func (c *Container) wrap(what string, err error) error {
	if err != nil {
		return fmt.Errorf("%s the container %s: %w", what, c.Name, err)
	}
	return nil
}

// Must fails the test on an error.
func (w *World) Must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}
