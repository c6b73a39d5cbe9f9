export function RoomScreen() { return null; }
