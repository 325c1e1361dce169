package aws

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/nstance/nstance/pkg/awsclient"
	"github.com/nstance/nstance/pkg/provider"
)

// leaderInterface moves a network interface that has the leader's address. EC2 detaches an
// interface only after the machine's system released it, or by force, which may leave the
// device index unusable until the machine stops.
//
// Attachments are detached by the ID that was read. A newer attachment made by another server
// has another ID, so a late call for the old one is refused.
type leaderInterface struct{ *mover }

var _ provider.LeaderNetwork = (*leaderInterface)(nil)

const (
	detachWait = 10 * time.Second // before a forced detach
	attachWait = time.Minute      // before another device index is tried
	moveWait   = 2 * time.Minute  // for the whole move
	indexTries = 8                // device indices tried per move
)

// Check implements provider.LeaderNetwork.
func (n *leaderInterface) Check(ctx context.Context) (bool, error) {
	held, _, err := within(ctx, n.check)
	return held, err
}

// check checks once whether this server has the interface.
func (n *leaderInterface) check(ctx context.Context) (held bool, err error) {
	self, err := n.self(ctx)
	if err != nil {
		return false, err
	}
	i, err := n.find(ctx)
	if err != nil || !attachedTo(i, self) {
		return false, err
	}
	return n.local(ctx)
}

// Assign implements provider.LeaderNetwork. It takes nothing from another server before it has
// checked that this instance may have the interface.
func (n *leaderInterface) Assign(ctx context.Context) error {
	attached, _, err := within(ctx, n.mayMove)
	if err != nil {
		return err
	}
	if !attached {
		m := &move{n: n, since: map[string]time.Time{}, begun: map[string]time.Time{}, forced: map[string]bool{}, tried: map[int32]bool{}}
		if err := pursue(ctx, moveWait, m.step); err != nil {
			return fmt.Errorf("move network interface %s to this instance: %w", n.l.Interface, err)
		}
	}
	return n.awaitLocal(ctx)
}

// mayMove refuses an interface that can't move to this instance, and reports whether it is
// already attached here.
func (n *leaderInterface) mayMove(ctx context.Context) (attached bool, err error) {
	self, err := n.self(ctx)
	if err != nil {
		return false, err
	}
	i, err := n.find(ctx)
	if err != nil || attachedTo(i, self) {
		return err == nil, err
	}
	own, err := n.own(ctx)
	if err != nil {
		return false, err
	}
	if here, there := sdk.ToString(own[0].AvailabilityZone), sdk.ToString(i.AvailabilityZone); here != there {
		return false, n.wrong("is in zone %s and this instance in %s: both must be in the same zone", there, here)
	}
	return false, nil
}

// find returns the interface, which must belong to the shard and have the addresses.
func (n *leaderInterface) find(ctx context.Context) (types.NetworkInterface, error) {
	all, err := n.interfaces(ctx, is("network-interface-id", n.l.Interface))
	switch {
	case err != nil:
		return types.NetworkInterface{}, err
	case len(all) == 0:
		return types.NetworkInterface{}, fmt.Errorf("%w: leader_network.interface_id: network interface %s not found in this region",
			provider.ErrNotFound, n.l.Interface)
	}
	i := all[0]
	if indexOf(i) == 0 {
		return i, n.wrong("is the primary interface of %s, which can't be moved: want an interface created on its own, or %s",
			sdk.ToString(i.Attachment.InstanceId), InterfacePrimary)
	}
	if odd := n.mistagged(i, tag{provider.TagManaged, "true"}); odd != "" {
		return i, n.wrong("%s for this shard's interface", odd)
	}
	if !n.hasAll(i) {
		return i, n.wrong("has the addresses %v: want %v among them", addressesOf(i), n.l.addresses())
	}
	return i, nil
}

// wrong returns an error about the configured interface.
func (n *leaderInterface) wrong(format string, args ...any) error {
	return fmt.Errorf("%w: leader_network.interface_id: network interface %s %s",
		provider.ErrInvalid, n.l.Interface, fmt.Sprintf(format, args...))
}

func attachedTo(i types.NetworkInterface, self string) bool {
	a := i.Attachment
	return a != nil && sdk.ToString(a.InstanceId) == self && a.Status == types.AttachmentStatusAttached
}

// move is the state of moving the interface to this instance.
type move struct {
	n      *leaderInterface
	since  map[string]time.Time // attachments being detached, and since when
	begun  map[string]time.Time // attachments to this instance, and when first seen
	forced map[string]bool
	tried  map[int32]bool // device indices known to be unusable, whatever reads show
}

// step performs the next step for the current state at EC2.
func (m *move) step(ctx context.Context) (done bool, err error) {
	self, err := m.n.self(ctx)
	if err != nil {
		return false, err
	}
	i, err := m.n.find(ctx)
	if err != nil {
		return false, err
	}
	a := i.Attachment
	switch {
	case a == nil || a.Status == types.AttachmentStatusDetached:
		return false, m.attach(ctx, self)
	case attachedTo(i, self):
		return true, nil
	case sdk.ToString(a.InstanceId) == self && a.Status == types.AttachmentStatusAttaching && !m.hangs(a):
		return false, errors.New("still attaching")
	default:
		return false, m.detach(ctx, a)
	}
}

// hangs reports whether an attachment to this instance takes too long, as at a device index
// spoilt by a forced detach. Another index is tried next.
func (m *move) hangs(a *types.NetworkInterfaceAttachment) bool {
	id, now := sdk.ToString(a.AttachmentId), time.Now()
	begun, seen := m.begun[id]
	if !seen {
		begun, m.begun[id] = now, now
	}
	if now.Sub(begun) < attachWait {
		return false
	}
	m.tried[sdk.ToInt32(a.DeviceIndex)] = true
	return true
}

// detach detaches the interface: first normally, then by force.
func (m *move) detach(ctx context.Context, a *types.NetworkInterfaceAttachment) error {
	id, now := sdk.ToString(a.AttachmentId), time.Now()
	waiting := fmt.Errorf("attachment is %s to %s", a.Status, sdk.ToString(a.InstanceId))
	since, asked := m.since[id]
	force := asked && now.Sub(since) >= detachWait
	switch {
	case !asked && a.Status == types.AttachmentStatusDetaching: // another server started it
		m.since[id] = now
		return waiting
	case asked && !force, m.forced[id]:
		return waiting
	case force:
		m.n.p.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "forcing the detach of the leader's network interface: its instance does not release it",
			slog.String("interface", m.n.l.Interface), slog.String("instance", sdk.ToString(a.InstanceId)),
			slog.Duration("after", now.Sub(since)))
	}
	_, err := m.n.p.api.detachInterface(ctx, &ec2.DetachNetworkInterfaceInput{AttachmentId: &id, Force: &force}, mutation)
	if err := changed("ec2:DetachNetworkInterface", err, "InvalidAttachmentID.NotFound", "IncorrectState"); err != nil {
		return err
	}
	if !asked {
		m.since[id] = now
	}
	m.forced[id] = force
	return waiting
}

// attach attaches the interface at the lowest free device index.
func (m *move) attach(ctx context.Context, self string) error {
	own, err := m.n.own(ctx)
	if err != nil {
		return err
	}
	index := int32(1)
	for m.tried[index] || slices.ContainsFunc(own, func(i types.NetworkInterface) bool { return indexOf(i) == index }) {
		index++
	}
	// Set the card too: otherwise device indices of other cards count as taken.
	_, err = m.n.p.api.attachInterface(ctx, &ec2.AttachNetworkInterfaceInput{
		NetworkInterfaceId: &m.n.l.Interface, InstanceId: &self, DeviceIndex: &index, NetworkCardIndex: sdk.Int32(0),
	}, mutation)
	passing := []string{"InvalidNetworkInterface.InUse", "IncorrectState", "IncorrectInstanceState"}
	if code, _ := awsclient.Code(err); code == "InvalidParameterValue" && len(m.tried) < indexTries {
		m.tried[index] = true // in use, or spoilt by a forced detach, which reads don't show
		passing = append(passing, code)
	}
	if err := changed("ec2:AttachNetworkInterface", err, passing...); err != nil {
		return err
	}
	return errors.New("still attaching")
}
