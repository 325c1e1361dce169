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

// leaderInterface moves a network interface with the leader's address on it. EC2 lets an
// interface go only once its machine's system has, or by force, which may spoil the
// place where it was: another interface may be refused there until the machine stops.
//
// What is taken away is the attachment that was read, by its id. One that another
// server made since then has another id, so a late call for the old one is refused.
type leaderInterface struct{ *mover }

var _ provider.LeaderNetwork = (*leaderInterface)(nil)

const (
	detachWait = 10 * time.Second // until force is used
	attachWait = time.Minute      // until an attachment is given up, and another index tried
	moveWait   = 2 * time.Minute  // for all of it
	indexTries = 8                // device indices that are tried in one move
)

// Check implements provider.LeaderNetwork.
func (n *leaderInterface) Check(ctx context.Context) (bool, error) {
	held, _, err := within(ctx, n.look)
	return held, err
}

// look is one look at who has the interface.
func (n *leaderInterface) look(ctx context.Context) (held bool, err error) {
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

// Assign implements provider.LeaderNetwork. Nothing is taken from anybody before it is
// known that this instance may have it.
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

// mayMove refuses an interface that can't come to this instance, and reports whether it
// is there already.
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
		return false, n.wrong("is in the zone %s, and this instance in %s: want both in one", there, here)
	}
	return false, nil
}

// find returns the interface, which has to be the shard's own, and to have the address.
func (n *leaderInterface) find(ctx context.Context) (types.NetworkInterface, error) {
	all, err := n.interfaces(ctx, is("network-interface-id", n.l.Interface))
	switch {
	case err != nil:
		return types.NetworkInterface{}, err
	case len(all) == 0:
		return types.NetworkInterface{}, fmt.Errorf("%w: leader_network.interface_id: no network interface %s can be seen in this region",
			provider.ErrNotFound, n.l.Interface)
	}
	i := all[0]
	if indexOf(i) == 0 {
		return i, n.wrong("is the primary one of %s, which can't be moved: want one that is of no instance's launch, or %s",
			sdk.ToString(i.Attachment.InstanceId), InterfacePrimary)
	}
	if odd := n.mistagged(i, tag{provider.TagManaged, "true"}); odd != "" {
		return i, n.wrong("%s, as this shard's interface has", odd)
	}
	if !n.hasAll(i) {
		return i, n.wrong("has the addresses %v: want %v among them", addressesOf(i), n.l.addresses())
	}
	return i, nil
}

// wrong says what is the matter with the interface that the config names.
func (n *leaderInterface) wrong(format string, args ...any) error {
	return fmt.Errorf("%w: leader_network.interface_id: network interface %s %s",
		provider.ErrInvalid, n.l.Interface, fmt.Sprintf(format, args...))
}

func attachedTo(i types.NetworkInterface, self string) bool {
	a := i.Attachment
	return a != nil && sdk.ToString(a.InstanceId) == self && a.Status == types.AttachmentStatusAttached
}

// move is one way of the interface to this instance.
type move struct {
	n      *leaderInterface
	since  map[string]time.Time // attachments that are to end, and from when on
	begun  map[string]time.Time // attachments to this instance, and since when they are seen
	forced map[string]bool
	tried  map[int32]bool // device indices that are taken, whatever reads show
}

// step does what comes next, by what EC2 shows now.
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
		return false, errors.New("it is attaching")
	default:
		return false, m.detach(ctx, a)
	}
}

// hangs reports whether an attachment to this instance takes too long, as one does at an
// index that a forced detach has spoilt. The next one is at another index.
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

// detach ends an attachment: first as its machine agrees, and then by force.
func (m *move) detach(ctx context.Context, a *types.NetworkInterfaceAttachment) error {
	id, now := sdk.ToString(a.AttachmentId), time.Now()
	waiting := fmt.Errorf("it is %s %s", a.Status, sdk.ToString(a.InstanceId))
	since, asked := m.since[id]
	force := asked && now.Sub(since) >= detachWait
	switch {
	case !asked && a.Status == types.AttachmentStatusDetaching: // somebody else asked
		m.since[id] = now
		return waiting
	case asked && !force, m.forced[id]:
		return waiting
	case force:
		m.n.p.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "leader's network interface is taken by force: its instance does not let go of it",
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

// attach attaches the interface at the lowest device index that nothing has.
func (m *move) attach(ctx context.Context, self string) error {
	own, err := m.n.own(ctx)
	if err != nil {
		return err
	}
	index := int32(1)
	for m.tried[index] || slices.ContainsFunc(own, func(i types.NetworkInterface) bool { return indexOf(i) == index }) {
		index++
	}
	// The card is named too: else a device index counts as taken that is so on another.
	_, err = m.n.p.api.attachInterface(ctx, &ec2.AttachNetworkInterfaceInput{
		NetworkInterfaceId: &m.n.l.Interface, InstanceId: &self, DeviceIndex: &index, NetworkCardIndex: sdk.Int32(0),
	}, mutation)
	passing := []string{"InvalidNetworkInterface.InUse", "IncorrectState", "IncorrectInstanceState"}
	if code, _ := awsclient.Code(err); code == "InvalidParameterValue" && len(m.tried) < indexTries {
		m.tried[index] = true // in use, or spoilt by a forced detach, which no read shows
		passing = append(passing, code)
	}
	if err := changed("ec2:AttachNetworkInterface", err, passing...); err != nil {
		return err
	}
	return errors.New("it is attaching")
}
